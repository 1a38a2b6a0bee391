"""DeepSeek V2, V2-Lite, V3 and R1: latent attention, and after the first layers experts of which some are shared."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from quire.core.errors import CheckpointError
from quire.core.routing import Routing
from quire.models.families.blocks import decoder, gated_mlp, mtp, norm, pre_norms, projection
from quire.models.families.dimensions import Dimensions, without_shared_heads
from quire.models.families.experts import experts, gguf_experts, shared_experts
from quire.models.families.family import Family, GGUFModel
from quire.spec.experts import ExpertsSpec
from quire.spec.latent import LatentAttentionSpec
from quire.spec.layer import LayerSpec
from quire.spec.layout import AS_STORED, HeadParts, Layout, PairedRows, StackedRows, TransposedHeads
from quire.spec.matrix import MatrixSpec, Part
from quire.spec.model import ModelSpec
from quire.spec.norm import NormSpec
from quire.spec.rope import RopeSpec, read_rope

_PREFIX = "model.layers.{}.self_attn."
_UP_IS_SPLIT = "keys_and_values_are_split"
"""What GGUF's configs say where `attn_k_b` and `attn_v_b` stand for one tensor."""


def _describe_v2(dims: Dimensions) -> ModelSpec:
    if dims.fields.flag("norm_topk_prob", False):
        raise CheckpointError(
            f"{dims.source} gives norm_topk_prob, which DeepSeek V2's own code and transformers take differently; "
            "quire runs V2 without it, as all released checkpoints are."
        )
    return _describe(dims, _v2_routing(dims), correction=None)


def _describe_v3(dims: Dimensions) -> ModelSpec:
    fields = dims.fields
    _check_choice(dims, "scoring_func", ("sigmoid",))
    _check_choice(dims, "topk_method", ("noaux_tc",))
    routing = Routing(
        fields.size("num_experts_per_tok"),
        "sigmoid",
        renormalize=fields.flag("norm_topk_prob", True),
        scale=fields.number("routed_scaling_factor", 1.0),
        groups=fields.size("n_group"),
        top_groups=fields.size("topk_group"),
    )
    return _describe(dims, routing, correction="gate.e_score_correction_bias")


def _describe(dims: Dimensions, routing: Routing, correction: str | None) -> ModelSpec:
    first = dims.fields.size_or_none("first_k_dense_replace", least=0) or 0
    if dims.fields.size("moe_layer_freq") != 1:
        raise CheckpointError(
            f"{dims.source} has experts in every {dims.fields.size('moe_layer_freq')}th layer; quire runs DeepSeek "
            "models with experts in every layer after the first."
        )
    rope = read_rope(dims.fields.values, dims.fields.size("qk_rope_head_dim"))

    def layer(index: int) -> LayerSpec:
        mlp = gated_mlp(dims, index) if index < first else _experts(dims, index, routing, correction)
        return LayerSpec(_attention(dims, index, rope), mlp, **pre_norms(dims, index))

    return decoder(dims, layer, ropes=(rope,), **mtp(dims, layer))


# --- attention -------------------------------------------------------------------------------------------------------


def _attention(dims: Dimensions, layer: int, rope: RopeSpec) -> LatentAttentionSpec:
    fields, start = dims.fields, _PREFIX.format(layer)
    latent, rotary = fields.size("kv_lora_rank"), fields.size("qk_rope_head_dim")
    nope, value = fields.size("qk_nope_head_dim"), fields.size("v_head_dim")
    query_latent = fields.size_or_none("q_lora_rank")
    heads, head_dim = dims.num_heads, nope + rotary
    bias = fields.flag("attention_bias", False)
    paired = fields.flag("rope_interleave", True)

    def turned(name: str, role: str, num_heads: int, size: int) -> Part:
        pairs: Layout = PairedRows(num_heads, size, rotary, size - rotary) if paired else AS_STORED
        return Part(start + name, role, num_heads * size, pairs, pairs)

    compressed = turned("kv_a_proj_with_mqa", "kv_a", 1, latent + rotary)
    if query_latent is None:
        if bias:
            raise CheckpointError(
                f"{dims.source} has attention_bias but no q_lora_rank: its queries would have no bias beside latents "
                "that have one, which quire does not run."
            )
        # ranks cut the queries; all of them have the latents
        down = MatrixSpec((turned("q_proj", "q", heads, head_dim), compressed), dims.hidden_size, "rows", layer=layer)
        query = query_norm = None
    else:
        parts = (Part(start + "q_a_proj", "q_a", query_latent), compressed)
        down = MatrixSpec(parts, dims.hidden_size, "none", bias, layer)
        query = MatrixSpec((turned("q_b_proj", "q_b", heads, head_dim),), query_latent, "rows", layer=layer)
        query_norm = _latent_norm(dims, layer, "q_a", query_latent)
    return LatentAttentionSpec(
        down=down,
        latent_norm=_latent_norm(dims, layer, "kv_a", latent),
        up=_up(dims, start, layer, nope, value, latent),
        out=projection(dims, layer, _PREFIX + "o_proj", "out", heads * value, bias=bias),
        num_heads=heads,
        nope_dim=nope,
        rope_dim=rotary,
        value_dim=value,
        scale=_scale(head_dim, rope.scaling),
        query=query,
        query_norm=query_norm,
    )


def _latent_norm(dims: Dimensions, layer: int, name: str, size: int) -> NormSpec:
    """Whose epsilon is no config's, but that of the models' own code."""
    return replace(norm(dims, f"{_PREFIX}{name}_layernorm", f"{name}_norm", layer, size=size), eps=1e-6)


def _up(dims: Dimensions, start: str, layer: int, nope: int, value: int, latent: int) -> MatrixSpec:
    heads = dims.num_heads
    together = HeadParts(heads, nope, value)
    if dims.fields.flag(_UP_IS_SPLIT, False):
        keys = Part(start + "k_b_proj", "k_b", heads * nope, AS_STORED, TransposedHeads(heads))
        parts = [keys, Part(start + "v_b_proj", "v_b", heads * value, AS_STORED, StackedRows(heads, value))]
    else:
        parts = [Part(start + "kv_b_proj", "kv_b", heads * (nope + value), together, together)]
    return MatrixSpec(tuple(parts), latent, "rows", layer=layer, heads=together)


def _scale(head_dim: int, scaling: Mapping[str, Any]) -> float:
    """YaRN's `mscale_all_dim` sharpens all scores, those of the parts that are not turned included."""
    weight, factor = float(scaling.get("mscale_all_dim") or 0.0), float(scaling.get("factor") or 1.0)
    sharper = 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0
    return sharper * sharper / math.sqrt(head_dim)


# --- experts ---------------------------------------------------------------------------------------------------------


def _experts(dims: Dimensions, layer: int, routing: Routing, correction: str | None) -> ExpertsSpec:
    size, count = dims.fields.size("moe_intermediate_size"), dims.fields.size_or_none("n_shared_experts", least=0)
    shared = shared_experts(dims, layer, "shared_experts", size * count) if count else None
    return experts(dims, layer, routing, size=size, correction=correction, shared=shared)


def _v2_routing(dims: Dimensions) -> Routing:
    fields = dims.fields
    _check_choice(dims, "scoring_func", ("softmax",))
    method = _check_choice(dims, "topk_method", ("greedy", "group_limited_greedy"))
    groups = (1, 1) if method == "greedy" else (fields.size("n_group"), fields.size("topk_group"))
    return Routing(
        fields.size("num_experts_per_tok"),
        renormalize=False,
        scale=fields.number("routed_scaling_factor", 1.0),
        groups=groups[0],
        top_groups=groups[1],
        group_score="largest",
    )


def _check_choice(dims: Dimensions, field: str, allowed: tuple[str, ...]) -> str:
    given = dims.fields.text(field, allowed[0])
    if given not in allowed:
        raise CheckpointError(
            f"{dims.source} gives {field} {given!r}; of {dims.architecture} quire runs {' and '.join(allowed)}."
        )
    return given


# --- other forms of the config ---------------------------------------------------------------------------------------


def _adapt(values: dict[str, Any]) -> dict[str, Any]:
    """What configs call the size of a head is that of its rotary part; some leave it out, and none shares keys."""
    rotary = values.get("qk_rope_head_dim", _DEFAULTS["qk_rope_head_dim"])
    return without_shared_heads(values) | {"head_dim": rotary}


def _from_gguf(model: GGUFModel) -> dict[str, Any]:
    """V3's files have the same architecture as V2's; their gates tell them apart."""
    read, tensors = model.read, model.tensors
    is_v3 = read.size_or_none("expert_gating_func") == _SIGMOID or any(".exp_probs_b." in name for name in tensors)
    number = 3 if is_v3 else 2
    nope_and_rope = read.size_or_none("attention.key_length_mla") or read.size("attention.key_length")
    rotary = read.size("rope.dimension_count")
    groups = read.size_or_none("expert_group_count")
    found: dict[str, Any] = {
        "model_type": f"deepseek_v{number}",
        "architectures": [f"DeepseekV{number}ForCausalLM"],
        **gguf_experts(model),
        "qk_rope_head_dim": rotary,
        "qk_nope_head_dim": nope_and_rope - rotary,
        "v_head_dim": read.size_or_none("attention.value_length_mla") or read.size("attention.value_length"),
        "q_lora_rank": read.size_or_none("attention.q_lora_rank"),
        "partial_rotary_factor": 1.0,
        "first_k_dense_replace": read.size_or_none("leading_dense_block_count", least=0),
        "n_shared_experts": read.size_or_none("expert_shared_count", least=0),
        "routed_scaling_factor": read.number_or_none("expert_weights_scale") or 1.0,
        "norm_topk_prob": bool(read.get("expert_weights_norm")),
        "n_group": groups or 1,
        "topk_group": read.size_or_none("expert_group_used_count") or 1,
        "topk_method": "noaux_tc" if is_v3 else "group_limited_greedy" if (groups or 1) > 1 else "greedy",
        _UP_IS_SPLIT: any(name.endswith(".attn_k_b.weight") for name in tensors),
    }
    return {name: value for name, value in found.items() if value is not None}


_SIGMOID = 2
"""GGUF's number of that gating function."""
_DEFAULTS: dict[str, Any] = {
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "moe_layer_freq": 1,
    "rope_interleave": True,
    "attention_bias": False,
}
V2 = Family(
    _describe_v2,
    defaults={**_DEFAULTS, "first_k_dense_replace": 0, "n_shared_experts": 2, "topk_method": "greedy"},
    adapt=_adapt,
    from_gguf=_from_gguf,
)
V3 = Family(
    _describe_v3,
    defaults={
        **_DEFAULTS,
        "n_routed_experts": 256,
        "num_experts_per_tok": 8,
        "n_shared_experts": 1,
        "n_group": 8,
        "topk_group": 4,
        "first_k_dense_replace": 3,
        "routed_scaling_factor": 2.5,
        "num_nextn_predict_layers": 1,
    },
    adapt=_adapt,
)
