"""gpt-oss: attention with sinks and windows in every other layer; experts with biases and a clamped activation."""

from typing import Any

from quire.core.errors import CheckpointError
from quire.core.routing import Routing
from quire.models.families.blocks import Norms, attention, decoder, norm
from quire.models.families.dimensions import Dimensions
from quire.models.families.experts import STACKED, fused_experts, gguf_experts
from quire.models.families.family import Family, GGUFModel
from quire.spec.experts import ExpertsSpec
from quire.spec.layer import LayerSpec
from quire.spec.model import ModelSpec
from quire.spec.tensor import TensorSpec

_EXPERTS = "model.layers.{}.mlp.experts."
_RENAMED = (
    (".self_attn.sinks", ".self_attn.sinks.weight"),
    *(
        (f".experts.{name}{ending}", f".experts.{name}.{now}")
        for name in ("gate_up_proj", "down_proj")
        for ending, now in (("", "weight"), ("_bias", "bias"), ("_blocks", "blocks"), ("_scales", "scales"))
    ),
)
_SWIGLU = {"swiglu_limit": 7.0, "swiglu_alpha": 1.702}
"""What the clamped activation is computed with."""


def describe(dims: Dimensions) -> ModelSpec:
    for field, only in _SWIGLU.items():
        if dims.fields.number(field, only) != only:
            raise CheckpointError(
                f"{dims.source} gives {field} as {dims.fields.number(field, only)}; quire has {only}."
            )
    return decoder(
        dims,
        lambda layer: LayerSpec(
            attention(dims, layer, sinks=_sinks(dims, layer)), _experts(dims, layer), **_norms(dims, layer)
        ),
        renamed=_RENAMED,
    )


def _experts(dims: Dimensions, layer: int) -> ExpertsSpec:
    return fused_experts(
        dims,
        layer,
        Routing(dims.fields.size("num_experts_per_tok")),
        size=dims.fields.size("intermediate_size"),
        names=("model.layers.{}.mlp.router", f"{_EXPERTS}gate_up_proj", f"{_EXPERTS}down_proj"),
        transposed=True,
        interleaved=True,
        bias=True,
        activated="clamped_swiglu",
    )


def _sinks(dims: Dimensions, layer: int) -> TensorSpec:
    return TensorSpec(f"model.layers.{layer}.self_attn.sinks.weight", (dims.num_heads,), "vector", "sinks", layer=layer)


def _norms(dims: Dimensions, layer: int) -> Norms:
    """GGUF calls the second by what it follows."""
    return {
        "attention_norm": norm(dims, "model.layers.{}.input_layernorm", "attention_norm", layer),
        "mlp_norm": norm(dims, "model.layers.{}.post_attention_layernorm", "added_attention_norm", layer),
    }


def _adapt(values: dict[str, Any]) -> dict[str, Any]:
    """Every other layer has the window, the first among them. GGUF does not say that YaRN is not rounded."""
    layers, scaling = values.get("num_hidden_layers"), values.get("rope_scaling")
    if "layer_types" not in values and isinstance(layers, int):
        kinds = ("sliding_attention", "full_attention")
        values = {**values, "layer_types": [kinds[layer % 2] for layer in range(layers)]}
    if values.get(STACKED) and isinstance(scaling, dict):
        values = {**values, "rope_scaling": {"truncate": False, **scaling}}
    return values


def _from_gguf(model: GGUFModel) -> dict[str, Any]:
    found = gguf_experts(model)
    return found | {"intermediate_size": found["moe_intermediate_size"]} if "moe_intermediate_size" in found else found


FAMILY = Family(
    describe,
    defaults={
        "num_local_experts": 128,
        "num_experts_per_tok": 4,
        "head_dim": 64,
        "num_key_value_heads": 8,
        "sliding_window": 128,
        "attention_bias": True,
        "rms_norm_eps": 1e-5,
        "rope_theta": 150_000.0,
    },
    adapt=_adapt,
    from_gguf=_from_gguf,
)
