"""Qwen3: no biases; every query and key head is normed before it is turned."""

from quire.layers.weights import WeightPolicy
from quire.models import parts
from quire.models.decoder import Decoder, DecoderLayer
from quire.models.loading.hf_config import HFShape


def build(shape: HFShape, policy: WeightPolicy) -> Decoder:
    fields = shape.fields
    bias = fields.flag("attention_bias", False)
    layers = [
        DecoderLayer(
            parts.attention(shape, layer, policy, qkv_bias=bias, output_bias=bias, norm_heads=True),
            parts.gated_mlp(shape, layer, policy),
            parts.layer_norms(shape, layer, policy),
        )
        for layer in range(shape.num_layers)
    ]
    return parts.decoder(shape, layers, policy)
