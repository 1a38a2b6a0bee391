"""Qwen2 and Qwen2.5: Llama's wiring with biases on q, k and v."""

from quire.layers.weights import WeightPolicy
from quire.models import parts
from quire.models.decoder import Decoder, DecoderLayer
from quire.models.loading.hf_config import HFShape


def build(shape: HFShape, policy: WeightPolicy) -> Decoder:
    layers = [
        DecoderLayer(
            parts.attention(shape, layer, policy, qkv_bias=True),
            parts.gated_mlp(shape, layer, policy),
            parts.layer_norms(shape, layer, policy),
        )
        for layer in range(shape.num_layers)
    ]
    return parts.decoder(shape, layers, policy)
