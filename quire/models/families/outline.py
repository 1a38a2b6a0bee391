"""The outline of a decoder that quire has no family for: its shape, by fields most configs have, and no tensors."""

from typing import Any

from quire.models.families.blocks import model, projection, self_attention, separate_qkv, words
from quire.models.families.dimensions import Dimensions
from quire.models.families.family import Family
from quire.spec.layer import LayerSpec
from quire.spec.matrix import MatrixSpec, Part
from quire.spec.mlp import MlpSpec
from quire.spec.model import ModelSpec


def describe(dims: Dimensions) -> ModelSpec:
    """Enough to plan KV and activations; names of tensors mean nothing here."""
    return model(
        dims,
        lambda layer: _layer(dims, layer),
        embedding=words(dims, "words"),
        norm=None,
        tied=True,
        is_described=False,
    )


def _layer(dims: Dimensions, layer: int) -> LayerSpec:
    hidden = dims.hidden_size
    size = dims.fields.size_or_none("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size") or 4 * hidden
    up = MatrixSpec((Part(f"up {layer}", "up", 2 * size),), hidden, "rows", layer=layer)
    return LayerSpec(
        self_attention(dims, layer, separate_qkv(dims, layer), f"out {layer}", rope=None),
        MlpSpec(up, projection(dims, layer, f"down {layer}", "down", size), "silu", gated=True),
    )


def _adapt(values: dict[str, Any]) -> dict[str, Any]:
    """The number of KV heads, which some configs give in other words."""
    nested = values.get("attn_config")
    if values.get("multi_query"):  # StarCoder's first family
        return {**values, "num_key_value_heads": 1}
    if isinstance(nested, dict) and nested.get("kv_n_heads") is not None:
        return {**values, "num_key_value_heads": nested["kv_n_heads"]}
    return values


OUTLINE = Family(describe, adapt=_adapt)
