"""Phi-3: q, k, v and gate, up are each one tensor in the checkpoint; part of a head may stay unturned."""

from quire.layers.linear import Linear, Source
from quire.layers.weights import WeightPolicy
from quire.models import parts
from quire.models.decoder import Decoder, DecoderLayer, GatedMLP, SelfAttention
from quire.models.loading.hf_config import HFShape


def build(shape: HFShape, policy: WeightPolicy) -> Decoder:
    layers = [
        DecoderLayer(
            _attention(shape, layer, policy), _mlp(shape, layer, policy), parts.layer_norms(shape, layer, policy)
        )
        for layer in range(shape.num_layers)
    ]
    return parts.decoder(shape, layers, policy)


def _attention(shape: HFShape, layer: int, policy: WeightPolicy) -> SelfAttention:
    policy = policy.of_layer(layer)
    prefix = f"model.layers.{layer}.self_attn"
    size = shape.num_heads * shape.head_dim
    rows = size + 2 * shape.num_kv_heads * shape.head_dim
    projection = Linear([Source(f"{prefix}.qkv_proj", rows)], shape.hidden_size, policy)
    output = Linear([Source(f"{prefix}.o_proj", shape.hidden_size)], size, policy)
    return SelfAttention(projection, output, parts.core_attention(shape, layer), parts.heads(shape))


def _mlp(shape: HFShape, layer: int, policy: WeightPolicy) -> GatedMLP:
    policy = policy.of_layer(layer)
    prefix = f"model.layers.{layer}.mlp"
    size = shape.fields.size("intermediate_size")
    gate_up = Linear([Source(f"{prefix}.gate_up_proj", 2 * size)], shape.hidden_size, policy)
    down = Linear([Source(f"{prefix}.down_proj", shape.hidden_size)], size, policy)
    return GatedMLP(gate_up, down, parts.activation(shape))
