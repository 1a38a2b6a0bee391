"""Gemma 3 (text): normed heads, and other angles in layers with a window than in those without."""

import math
from collections.abc import Mapping
from typing import Any

from quire.layers.rope import Rope, RopeConfig, read_rope
from quire.layers.weights import WeightPolicy
from quire.models import parts
from quire.models.decoder import Decoder, DecoderLayer
from quire.models.loading.hf_config import HFShape

FULL, SLIDING = 0, 1


def build(shape: HFShape, policy: WeightPolicy) -> Decoder:
    fields = shape.fields
    scale = fields.number("query_pre_attn_scalar", 256.0) ** -0.5
    bias = fields.flag("attention_bias", False)
    windows = shape.windows or (None,) * shape.num_layers
    layers = [
        DecoderLayer(
            parts.attention(
                shape,
                layer,
                policy,
                qkv_bias=bias,
                output_bias=bias,
                norm_heads=True,
                norm_offset=1.0,
                scale=scale,
                softcap=fields.number_or_none("attn_logit_softcapping"),
            ),
            parts.gated_mlp(shape, layer, policy),
            *parts.sandwich_norms(shape, layer, policy),
            rope=FULL if windows[layer] is None else SLIDING,
        )
        for layer in range(shape.num_layers)
    ]
    return Decoder(
        parts.embedding(shape, policy),
        layers,
        parts.rms_norm(shape, "model.norm", policy, offset=1.0),
        parts.head(shape, policy, tied=fields.flag("tie_word_embeddings", True)),
        ropes=[Rope(config, policy.device) for config in _ropes(fields.values, shape.head_dim)],
        embedding_scale=math.sqrt(shape.hidden_size),
        logit_softcap=fields.number_or_none("final_logit_softcapping"),
    )


def _ropes(values: Mapping[str, Any], head_dim: int) -> list[RopeConfig]:
    """Angles of full and of sliding layers. Newer configs name both; older ones give a local base beside the rest."""
    by_kind = values.get("rope_parameters")
    if isinstance(by_kind, dict) and "full_attention" in by_kind:
        kinds = ("full_attention", "sliding_attention")
        return [read_rope({**values, "rope_scaling": by_kind[kind]}, head_dim) for kind in kinds]
    local = {**values, "rope_scaling": None, "rope_parameters": None}
    local["rope_theta"] = values.get("rope_local_base_freq") or 10_000.0
    return [read_rope(values, head_dim, theta=1_000_000.0), read_rope(local, head_dim)]
