"""Llama 2 and 3, SmolLM2, and what is built like them."""

from quire.layers.weights import WeightPolicy
from quire.models import parts
from quire.models.decoder import Decoder, DecoderLayer
from quire.models.loading.hf_config import HFShape


def build(shape: HFShape, policy: WeightPolicy) -> Decoder:
    """RMSNorm before attention and MLP, rotary positions, grouped KV heads."""
    fields = shape.fields
    attention_bias, mlp_bias = fields.flag("attention_bias", False), fields.flag("mlp_bias", False)
    layers = [
        DecoderLayer(
            parts.attention(shape, layer, policy, qkv_bias=attention_bias, output_bias=attention_bias),
            parts.gated_mlp(shape, layer, policy, bias=mlp_bias),
            parts.layer_norms(shape, layer, policy),
        )
        for layer in range(shape.num_layers)
    ]
    return parts.decoder(shape, layers, policy)
