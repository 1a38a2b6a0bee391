"""MPNet: BERT's layers with a bias on scores by how far tokens are apart, and no token types."""

from dataclasses import replace
from typing import Any

from quire.models.families.bert import OTHER_TASKS, classifier_of, positions_after_padding
from quire.models.families.blocks import (
    CLASSIFIER,
    layer_norm,
    plain_mlp,
    projection,
    self_attention,
    separate_qkv,
    table,
)
from quire.models.families.dimensions import Dimensions, longest_position
from quire.models.families.family import Family
from quire.spec.layer import LayerSpec
from quire.spec.model import EmbeddingSpec, ModelSpec, RelativeBiasSpec

_PADDING = 1
_MAX_DISTANCE = 128


def describe(dims: Dimensions) -> ModelSpec:
    hidden, start = dims.hidden_size, "mpnet.embeddings"
    dims = replace(dims, max_position=positions_after_padding(dims, _PADDING))
    is_classifier = dims.architecture.endswith(CLASSIFIER)
    buckets = dims.fields.size("relative_attention_num_buckets")
    return ModelSpec(
        architecture=dims.architecture,
        vocab_size=dims.vocab_size,
        hidden_size=hidden,
        max_position=dims.max_position,
        layers=tuple(_layer(dims, f"mpnet.encoder.layer.{layer}", layer) for layer in range(dims.num_layers)),
        embedding=EmbeddingSpec(
            table(f"{start}.word_embeddings", "words", dims.vocab_size, hidden),
            table(f"{start}.position_embeddings", "positions", longest_position(dims.fields), hidden),
            _PADDING + 1,
            norm=layer_norm(dims, f"{start}.LayerNorm", "embedding_norm"),
        ),
        norm=None,
        relative_bias=RelativeBiasSpec(
            table("mpnet.encoder.relative_attention_bias", "relative_bias", buckets, dims.num_heads), _MAX_DISTANCE
        ),
        classifier=classifier_of(dims, "classifier.dense", "classifier.out_proj") if is_classifier else None,
        prefix="mpnet.",
        unused=OTHER_TASKS,
    )


def _layer(dims: Dimensions, prefix: str, layer: int) -> LayerSpec:
    qkv = separate_qkv(dims, layer, f"{prefix}.attention.attn.", ("q", "k", "v"), bias=True)
    out = projection(dims, layer, f"{prefix}.attention.attn.o", "out", dims.hidden_size, bias=True)
    names = (f"{prefix}.intermediate.dense", f"{prefix}.output.dense")
    return LayerSpec(
        self_attention(dims, layer, qkv, out, rope=None, causal=False),
        plain_mlp(dims, layer, names, dims.fields.size("intermediate_size")),
        layer_norm(dims, f"{prefix}.attention.LayerNorm", "after_attention_norm", layer),
        layer_norm(dims, f"{prefix}.output.LayerNorm", "after_mlp_norm", layer),
        wiring="post",
    )


_DEFAULTS: dict[str, Any] = {
    "num_hidden_layers": 12,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "max_position_embeddings": 512,
    "layer_norm_eps": 1e-12,
    "relative_attention_num_buckets": 32,
}
FAMILY = Family(describe, _DEFAULTS)
