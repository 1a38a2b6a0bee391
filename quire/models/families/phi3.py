"""Phi-3, Phi-3.5 and Phi-4: q, k, v and gate, up are each one tensor; part of a head may stay unturned."""

from quire.models.families.blocks import activation, decoder, fused_qkv, pre_norms, projection, self_attention
from quire.models.families.dimensions import Dimensions
from quire.models.families.family import Family
from quire.spec.layer import LayerSpec, MlpSpec
from quire.spec.matrix import MatrixSpec, Part
from quire.spec.model import ModelSpec


def describe(dims: Dimensions) -> ModelSpec:
    return decoder(dims, lambda layer: _layer(dims, layer))


def _layer(dims: Dimensions, layer: int) -> LayerSpec:
    prefix = f"model.layers.{layer}"
    size = dims.fields.size("intermediate_size")
    qkv = fused_qkv(dims, layer, f"{prefix}.self_attn.qkv_proj")
    out = projection(dims, layer, f"{prefix}.self_attn.o_proj", "out", dims.num_heads * dims.head_dim)
    up = MatrixSpec((Part(f"{prefix}.mlp.gate_up_proj", "gate_up", 2 * size),), dims.hidden_size, "rows", layer=layer)
    down = projection(dims, layer, f"{prefix}.mlp.down_proj", "down", size)
    return LayerSpec(
        self_attention(dims, layer, qkv, out),
        MlpSpec(up, down, activation(dims), gated=True),
        **pre_norms(dims, layer),
    )


FAMILY = Family(describe)
