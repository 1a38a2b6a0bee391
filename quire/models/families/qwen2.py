"""Qwen2 and Qwen2.5: Llama's wiring with biases on q, k and v."""

from quire.models.families.blocks import attention, decoder, gated_mlp, pre_norms
from quire.models.families.dimensions import Dimensions
from quire.models.families.family import Family
from quire.spec.layer import LayerSpec
from quire.spec.model import ModelSpec


def describe(dims: Dimensions) -> ModelSpec:
    return decoder(
        dims,
        lambda layer: LayerSpec(
            attention(dims, layer, qkv_bias=True, out_bias=False), gated_mlp(dims, layer), **pre_norms(dims, layer)
        ),
    )


FAMILY = Family(describe, defaults={"use_sliding_window": False})
