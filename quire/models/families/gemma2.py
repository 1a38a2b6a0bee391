"""Gemma 2: scaled embeddings, norms around what is added, capped scores and logits, alternating windows."""

import math

from quire.layers.rope import Rope, read_rope
from quire.layers.weights import WeightPolicy
from quire.models import parts
from quire.models.decoder import Decoder, DecoderLayer
from quire.models.loading.hf_config import HFShape


def build(shape: HFShape, policy: WeightPolicy) -> Decoder:
    fields = shape.fields
    scale = fields.number("query_pre_attn_scalar", 256.0) ** -0.5
    bias = fields.flag("attention_bias", False)
    layers = [
        DecoderLayer(
            parts.attention(
                shape,
                layer,
                policy,
                qkv_bias=bias,
                output_bias=bias,
                scale=scale,
                softcap=fields.number_or_none("attn_logit_softcapping"),
            ),
            parts.gated_mlp(shape, layer, policy),
            *parts.sandwich_norms(shape, layer, policy),
        )
        for layer in range(shape.num_layers)
    ]
    return Decoder(
        parts.embedding(shape, policy),
        layers,
        parts.rms_norm(shape, "model.norm", policy, offset=1.0),
        parts.head(shape, policy, tied=fields.flag("tie_word_embeddings", True)),
        ropes=[Rope(read_rope(fields.values, shape.head_dim), policy.device)],
        embedding_scale=math.sqrt(shape.hidden_size),
        logit_softcap=fields.number_or_none("final_logit_softcapping"),
    )
