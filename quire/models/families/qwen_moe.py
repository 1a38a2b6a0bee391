"""Qwen2-MoE, Qwen3-MoE and the language model of Qwen3-VL with experts: Qwen's attention, and experts in place of the
MLPs of all or of some layers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from quire.core.errors import CheckpointError
from quire.core.routing import Routing
from quire.models.families.blocks import attention, decoder, gated_mlp, head_norms, pre_norms
from quire.models.families.dimensions import Dimensions
from quire.models.families.experts import experts, fused_experts, gguf_experts, shared_experts
from quire.models.families.family import Family, GGUFModel
from quire.spec.experts import ExpertsSpec
from quire.spec.layer import AttentionSpec, LayerSpec
from quire.spec.model import ModelSpec

_MLP = "model.layers.{}.mlp."
_RENAMED = tuple((f".experts.{name}", f".experts.{name}.weight") for name in ("gate_up_proj", "down_proj"))


def _describe_qwen2(dims: Dimensions) -> ModelSpec:
    bias = dims.fields.flag("qkv_bias", True)
    return _describe(dims, lambda layer: attention(dims, layer, qkv_bias=bias, out_bias=False), _with_shared_expert)


def _describe_qwen3(dims: Dimensions) -> ModelSpec:
    return _describe(dims, lambda layer: attention(dims, layer, head_norms=head_norms(dims, layer)), _routed)


def _describe_qwen3_vl(dims: Dimensions) -> ModelSpec:
    spec = _describe(dims, lambda layer: attention(dims, layer, head_norms=head_norms(dims, layer)), _fused)
    return replace(spec, renamed=_RENAMED)


def _describe(
    dims: Dimensions, attend: Callable[[int], AttentionSpec], moe: Callable[[Dimensions, int], ExpertsSpec]
) -> ModelSpec:
    sparse = _sparse_layers(dims)
    return decoder(
        dims,
        lambda layer: LayerSpec(
            attend(layer), moe(dims, layer) if layer in sparse else gated_mlp(dims, layer), **pre_norms(dims, layer)
        ),
    )


def _sparse_layers(dims: Dimensions) -> set[int]:
    """Layers with experts."""
    dense, every = dims.fields.values.get("mlp_only_layers", []), dims.fields.size("decoder_sparse_step")
    if not isinstance(dense, list) or not all(isinstance(layer, int) for layer in dense):
        raise CheckpointError(f"{dims.source} must give mlp_only_layers as a list of layers.")
    return {layer for layer in range(dims.num_layers) if layer not in dense and (layer + 1) % every == 0}


def _routed(dims: Dimensions, layer: int) -> ExpertsSpec:
    return experts(dims, layer, _routing(dims), size=dims.fields.size("moe_intermediate_size"))


def _fused(dims: Dimensions, layer: int) -> ExpertsSpec:
    """All experts in one tensor: columns first in what is published, rows first in what transformers 5 saves."""
    return fused_experts(
        dims,
        layer,
        Routing(dims.fields.size("num_experts_per_tok"), renormalize=True),
        size=dims.fields.size("moe_intermediate_size"),
        names=(f"{_MLP}gate", f"{_MLP}experts.gate_up_proj", f"{_MLP}experts.down_proj"),
        transposed=True,
        either_way=True,
    )


def _with_shared_expert(dims: Dimensions, layer: int) -> ExpertsSpec:
    size = dims.fields.size("shared_expert_intermediate_size")
    return experts(
        dims,
        layer,
        _routing(dims),
        size=dims.fields.size("moe_intermediate_size"),
        shared=shared_experts(dims, layer, "shared_expert", size),
        shared_gate="shared_expert_gate",
    )


def _routing(dims: Dimensions) -> Routing:
    return Routing(dims.fields.size("num_experts_per_tok"), renormalize=dims.fields.flag("norm_topk_prob", False))


def _qwen3_from_gguf(model: GGUFModel) -> dict[str, Any]:
    return gguf_experts(model) | {"norm_topk_prob": True}  # all that were released have it, and no file says so


_DEFAULTS: dict[str, Any] = {"use_sliding_window": False, "decoder_sparse_step": 1}
QWEN2 = Family(_describe_qwen2, defaults=_DEFAULTS)
QWEN3 = Family(
    _describe_qwen3,
    defaults={**_DEFAULTS, "num_experts_per_tok": 8, "moe_intermediate_size": 768},
    from_gguf=_qwen3_from_gguf,
)
QWEN3_VL = Family(
    _describe_qwen3_vl,
    defaults={
        **_DEFAULTS,
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "max_position_embeddings": 128_000,
        "vocab_size": 151_936,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 1408,
        "rope_theta": 500_000.0,
    },
)
