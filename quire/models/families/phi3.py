"""Phi-3, Phi-3.5 and Phi-4: q, k, v and gate, up are each one tensor; part of a head may stay unturned."""

from quire.models.families.blocks import decoder, fused_qkv, gated_mlp, pre_norms, self_attention
from quire.models.families.dimensions import Dimensions
from quire.models.families.family import Family
from quire.spec.layer import LayerSpec
from quire.spec.model import ModelSpec


def describe(dims: Dimensions) -> ModelSpec:
    return decoder(dims, lambda layer: _layer(dims, layer))


def _layer(dims: Dimensions, layer: int) -> LayerSpec:
    prefix = f"model.layers.{layer}.self_attn"
    qkv = fused_qkv(dims, layer, f"{prefix}.qkv_proj")
    return LayerSpec(
        self_attention(dims, layer, qkv, f"{prefix}.o_proj"),
        gated_mlp(dims, layer, ("gate_up_proj", "down_proj")),
        **pre_norms(dims, layer),
    )


FAMILY = Family(describe)
