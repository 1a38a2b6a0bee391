"""OPT: learned positions, ReLU, biases everywhere; its model of 350 million norms sums and has narrower words."""

from typing import Any

from quire.core.errors import CheckpointError
from quire.models.families.blocks import decoder, layer_norm, plain_mlp, self_attention, separate_qkv, table
from quire.models.families.dimensions import Dimensions, without_shared_heads
from quire.models.families.family import Family
from quire.spec.layer import LayerSpec
from quire.spec.matrix import MatrixSpec, Part
from quire.spec.model import EmbeddingSpec, ModelSpec

_PREFIX = "model.decoder"
_FIRST_POSITION = 2
"""Rows of the table of positions that no token has."""


def describe(dims: Dimensions) -> ModelSpec:
    fields, hidden = dims.fields, dims.hidden_size
    if not fields.flag("layer_norm_elementwise_affine", True):
        raise CheckpointError(f"{fields.source} has norms without weights, which quire's OPT does not have.")
    width = fields.size_or_none("word_embed_proj_dim") or hidden
    narrow = width != hidden
    positions = table(f"{_PREFIX}.embed_positions", "positions", dims.max_position + _FIRST_POSITION, hidden)
    has_norm = fields.flag("do_layer_norm_before", True) and not fields.flag("_remove_final_layer_norm", False)
    return decoder(
        dims,
        lambda layer: _layer(dims, layer),
        embedding=EmbeddingSpec(
            table(f"{_PREFIX}.embed_tokens", "words", dims.vocab_size, width),
            positions,
            _FIRST_POSITION,
            projection=_projection("project_in", hidden, width) if narrow else None,
        ),
        norm=layer_norm(dims, f"{_PREFIX}.final_layer_norm", "output_norm") if has_norm else None,
        head_projection=_projection("project_out", width, hidden) if narrow else None,
        ropes=(),
    )


def _layer(dims: Dimensions, layer: int) -> LayerSpec:
    fields, prefix = dims.fields, f"{_PREFIX}.layers.{layer}"
    bias = fields.flag("enable_bias", True)
    qkv = separate_qkv(dims, layer, f"{prefix}.self_attn.", bias=bias)
    names = (f"{prefix}.fc1", f"{prefix}.fc2")
    return LayerSpec(
        self_attention(dims, layer, qkv, f"{prefix}.self_attn.out_proj", bias=bias, rope=None),
        plain_mlp(dims, layer, names, fields.size("ffn_dim"), bias=bias, usual="relu"),
        layer_norm(dims, f"{prefix}.self_attn_layer_norm", "attention_norm", layer),
        layer_norm(dims, f"{prefix}.final_layer_norm", "mlp_norm", layer),
        wiring="sequential" if fields.flag("do_layer_norm_before", True) else "post",
    )


def _projection(name: str, rows: int, columns: int) -> MatrixSpec:
    return MatrixSpec((Part(f"{_PREFIX}.{name}", name, rows),), columns, "none")


_DEFAULTS: dict[str, Any] = {"tie_word_embeddings": True, "layer_norm_eps": 1e-5}
FAMILY = Family(describe, _DEFAULTS, without_shared_heads)
