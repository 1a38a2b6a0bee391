"""Gemma 2 and 3 (text): scaled embeddings, norms around what is added, capped scores and logits, alternating windows.

Gemma 3 also norms heads, and turns layers with a window by other angles than those without.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from quire.models.families.blocks import attention, decoder, gated_mlp, head_norms, norm, sandwich_norms, words
from quire.models.families.dimensions import Dimensions, longest_position
from quire.models.families.family import Family, GGUFModel
from quire.spec.layer import LayerSpec
from quire.spec.model import ModelSpec
from quire.spec.rope import RopeSpec, read_rope

_FULL, _SLIDING = 0, 1
_SCALED_BY_WIDTH = {"gemma2": 46, "gemma3": 62}
"""Layers of the one model of each family whose scores are scaled by width over heads, not by the size of a head."""
_CAPS = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
"""Gemma 2's, which its first GGUF files leave out."""
_DEFAULTS = {"head_dim": 256, "tie_word_embeddings": True, "hidden_activation": "gelu_pytorch_tanh"}


def _describe2(dims: Dimensions) -> ModelSpec:
    return _gemma(dims, lambda layer: 0, (read_rope(dims.fields.values, dims.head_dim),), normed_heads=False)


def _describe3(dims: Dimensions) -> ModelSpec:
    # the config's length includes what scaling brings
    dims = replace(dims, max_position=longest_position(dims.fields), max_position_source="the checkpoint")
    ropes = _ropes(dims.fields.values, dims.head_dim)
    return _gemma(dims, lambda layer: _FULL if dims.windows[layer] is None else _SLIDING, ropes, normed_heads=True)


def _gemma(dims: Dimensions, rope: Any, ropes: tuple[RopeSpec, ...], *, normed_heads: bool) -> ModelSpec:
    fields = dims.fields
    return decoder(
        dims,
        lambda layer: LayerSpec(
            attention(
                dims,
                layer,
                head_norms=head_norms(dims, layer, offset=1.0) if normed_heads else None,
                scale=fields.number("query_pre_attn_scalar", 256.0) ** -0.5,
                softcap=fields.number_or_none("attn_logit_softcapping"),
                rope=rope(layer),
            ),
            gated_mlp(dims, layer),
            **sandwich_norms(dims, layer),
        ),
        embedding=words(dims, "model.embed_tokens", scale=math.sqrt(dims.hidden_size)),
        norm=norm(dims, "model.norm", "output_norm", offset=1.0),
        ropes=ropes,
        logit_softcap=fields.number_or_none("final_logit_softcapping"),
    )


def _ropes(values: Mapping[str, Any], head_dim: int) -> tuple[RopeSpec, ...]:
    """Angles of full and of sliding layers. Newer configs name both; older ones give a local base beside the rest."""
    by_kind = values.get("rope_parameters")
    if isinstance(by_kind, dict) and "full_attention" in by_kind:
        kinds = ("full_attention", "sliding_attention")
        return tuple(read_rope({**values, "rope_scaling": by_kind[kind]}, head_dim) for kind in kinds)
    local = {**values, "rope_scaling": None, "rope_parameters": None}
    local["rope_theta"] = values.get("rope_local_base_freq") or 10_000.0
    return read_rope(values, head_dim, theta=1_000_000.0), read_rope(local, head_dim)


def _from_gguf(model: GGUFModel) -> dict[str, Any]:
    read, shape = model.read, model.shape
    scale = read.number_or_none("attention.scale")
    by_width = shape["num_hidden_layers"] == _SCALED_BY_WIDTH[read.architecture]
    size = shape["hidden_size"] // shape["num_attention_heads"] if by_width else shape["head_dim"]
    fields: dict[str, Any] = {"query_pre_attn_scalar": size if scale is None else scale**-2}
    if read.architecture == "gemma3":
        fields["rope_local_base_freq"] = read.number_or_none("rope.freq_base_swa") or 10_000.0
    for name, usual in _CAPS.items():
        cap = read.number_or_none(name) or (usual if read.architecture == "gemma2" else None)
        fields |= {} if cap is None else {name: cap}
    return fields


GEMMA2 = Family(
    _describe2,
    {**_DEFAULTS, "sliding_window": 4096, "max_position_embeddings": 8192, "sliding_window_pattern": 2},
    from_gguf=_from_gguf,
)
GEMMA3 = Family(
    _describe3,
    {
        **_DEFAULTS,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "sliding_window": 4096,
        "sliding_window_pattern": 6,
        "vocab_size": 262_208,
        "max_position_embeddings": 131_072,
    },
    from_gguf=_from_gguf,
)
