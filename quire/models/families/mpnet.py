"""MPNet: BERT's layers with a bias on scores by how far tokens are apart, and no token types."""

from dataclasses import replace

from quire.models.families.bert import DEFAULTS, OWN_HEAD, encoder
from quire.models.families.blocks import table
from quire.models.families.dimensions import Dimensions
from quire.models.families.family import Family
from quire.spec.model import ModelSpec, RelativeBiasSpec

_NAMES = ("attn.q", "attn.k", "attn.v", "attn.o", "LayerNorm")
_PADDING = 1
_MAX_DISTANCE = 128


def describe(dims: Dimensions) -> ModelSpec:
    spec = encoder(dims, "mpnet", _NAMES, OWN_HEAD, _PADDING)
    buckets = dims.fields.size("relative_attention_num_buckets")
    bias = table("mpnet.encoder.relative_attention_bias", "relative_bias", buckets, dims.num_heads)
    return replace(
        spec, embedding=replace(spec.embedding, types=None), relative_bias=RelativeBiasSpec(bias, _MAX_DISTANCE)
    )


FAMILY = Family(describe, {**DEFAULTS, "relative_attention_num_buckets": 32})
