"""Llama 4, its text: chunks of positions in layers that turn heads, temperature in the others; experts that weigh their
input, and a shared one.
"""

from typing import Any

from quire.core.errors import CheckpointError
from quire.core.routing import Routing
from quire.models.families.blocks import attention, decoder, gated_mlp, norm, pre_norms, turned_layers
from quire.models.families.dimensions import Dimensions
from quire.models.families.experts import fused_experts, gguf_experts
from quire.models.families.family import Family, GGUFModel
from quire.spec.experts import ExpertsSpec
from quire.spec.layer import AttentionSpec, HeadNormsSpec, LayerSpec
from quire.spec.mlp import MlpSpec
from quire.spec.model import ModelSpec, TemperatureSpec

_MLP = "model.layers.{}.feed_forward."
_RENAMED = tuple((f".experts.{name}", f".experts.{name}.weight") for name in ("gate_up_proj", "down_proj"))
_VISION = (r"(vision_model|multi_modal_projector)\..*", "the config has no vision_config, so the model reads no images")
_KINDS = ("chunked_attention", "full_attention")
_UNNORMED = 128
"""Experts of Maverick, whose queries and keys are not normed; GGUF does not say so."""


def describe(dims: Dimensions) -> ModelSpec:
    fields, sparse = dims.fields, _sparse_layers(dims)
    turned, chunks = turned_layers(dims), _chunks(dims)
    tuned = fields.flag("attn_temperature_tuning", True)
    return decoder(
        dims,
        lambda layer: LayerSpec(
            _attention(dims, layer, turned=turned[layer], chunk=chunks[layer], tuned=tuned),
            _experts(dims, layer) if layer in sparse else _dense(dims, layer),
            **pre_norms(dims, layer),
        ),
        temperature=TemperatureSpec(fields.number("attn_scale", 0.1), fields.size("floor_scale")) if tuned else None,
        outer_prefix="language_model.",
        left_out=(_VISION,),
        renamed=_RENAMED,
    )


def _attention(dims: Dimensions, layer: int, *, turned: bool, chunk: int | None, tuned: bool) -> AttentionSpec:
    normed = turned and dims.fields.flag("use_qk_norm", True)
    return attention(
        dims,
        layer,
        paired=turned,
        rope=0 if turned else None,
        chunk=chunk,
        head_norms=_head_norms(dims, layer) if normed else None,
        has_temperature=tuned and not turned,
    )


def _head_norms(dims: Dimensions, layer: int) -> HeadNormsSpec:
    """The family norms heads after they are turned, which changes no length."""
    query, key = (
        norm(dims, f"model.layers.{layer}.self_attn.{role}", role, layer, size=dims.head_dim, learned=False)
        for role in ("q_norm", "k_norm")
    )
    return HeadNormsSpec(query, key)


def _experts(dims: Dimensions, layer: int) -> ExpertsSpec:
    fields = dims.fields
    size = fields.size("intermediate_size")
    return fused_experts(
        dims,
        layer,
        Routing(fields.size("num_experts_per_tok"), "sigmoid", renormalize=False),
        size=size,
        names=(f"{_MLP}router", f"{_MLP}experts.gate_up_proj", f"{_MLP}experts.down_proj"),
        transposed=True,
        weighs_input=True,
        shared=gated_mlp(dims, layer, prefix=f"{_MLP}shared_expert.", size=size, role="shared_"),
    )


def _dense(dims: Dimensions, layer: int) -> MlpSpec:
    return gated_mlp(dims, layer, prefix=_MLP, size=dims.fields.size("intermediate_size_mlp"))


def _sparse_layers(dims: Dimensions) -> set[int]:
    """Layers with experts."""
    given, every = dims.fields.values.get("moe_layers"), dims.fields.size("interleave_moe_layer_step")
    if given is None:
        return set(range(every - 1, dims.num_layers, every))
    if not isinstance(given, list) or not all(isinstance(layer, int) for layer in given):
        raise CheckpointError(f"{dims.source} must give moe_layers as a list of layers.")
    return set(given)


def _chunks(dims: Dimensions) -> list[int | None]:
    """The size of each layer's chunks; layers that turn heads have them, unless the config says otherwise."""
    size = dims.fields.size_or_none("attention_chunk_size")
    size = None if size is None or size >= dims.max_position else size
    kinds = dims.fields.values.get("attention_kinds")
    if kinds is None:
        kinds = [_KINDS[not turned] for turned in turned_layers(dims)]
    if not isinstance(kinds, list) or len(kinds) != dims.num_layers or not all(kind in _KINDS for kind in kinds):
        raise CheckpointError(
            f"{dims.source} must give layer_types as a list of {dims.num_layers} names, each {' or '.join(_KINDS)}."
        )
    return [size if kind == "chunked_attention" else None for kind in kinds]


def _adapt(values: dict[str, Any]) -> dict[str, Any]:
    """Chunks are no windows, so what says which layers have them gets a name of its own."""
    kinds = {"attention_kinds": values["layer_types"]} if "layer_types" in values else {}
    # an empty list is one that is not given
    others = {name: value for name, value in values.items() if value != [] or name != "no_rope_layers"}
    return {name: value for name, value in others.items() if name != "layer_types"} | kinds


def _from_gguf(model: GGUFModel) -> dict[str, Any]:
    """What the file leaves out is the same in all models that were released."""
    found = gguf_experts(model)
    dense, size = model.shape["intermediate_size"], found.get("moe_intermediate_size")
    return found | {
        "intermediate_size": size or dense,
        "intermediate_size_mlp": dense,
        "interleave_moe_layer_step": model.read.size_or_none("interleave_moe_layer_step") or 1,
        "use_qk_norm": found["num_experts"] != _UNNORMED,
    }


FAMILY = Family(
    describe,
    defaults={
        "num_key_value_heads": 8,
        "head_dim": 128,
        "num_local_experts": 16,
        "num_experts_per_tok": 1,
        "intermediate_size_mlp": 16384,
        "interleave_moe_layer_step": 1,
        "attention_chunk_size": 8192,
        "floor_scale": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500_000.0,
    },
    adapt=_adapt,
    from_gguf=_from_gguf,
)
