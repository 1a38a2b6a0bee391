"""Cohere's Command R and R7B: one norm a layer, attention and MLP side by side, neighbouring rows turn together.

Command R7B (cohere2) has windows, and layers without one turn no heads.
"""

from typing import Any

from quire.models.families.blocks import decoder, gated_mlp, heads_layout, layer_norm, self_attention, separate_qkv
from quire.models.families.dimensions import Dimensions
from quire.models.families.family import Family, GGUFModel
from quire.spec.layer import HeadNormsSpec, LayerSpec
from quire.spec.model import ModelSpec
from quire.spec.norm import NormSpec


def _describe(dims: Dimensions) -> ModelSpec:
    return _model(dims, [0] * dims.num_layers)


def _describe2(dims: Dimensions) -> ModelSpec:
    return _model(dims, [0 if window is not None else None for window in dims.windows])


def _model(dims: Dimensions, ropes: list[int | None]) -> ModelSpec:
    return decoder(
        dims,
        lambda layer: _layer(dims, layer, ropes[layer]),
        norm=layer_norm(dims, "model.norm", "output_norm", bias=False),
        logit_scale=dims.fields.number("logit_scale", 0.0625),
    )


def _layer(dims: Dimensions, layer: int, rope: int | None) -> LayerSpec:
    fields = dims.fields
    bias = fields.flag("attention_bias", False)
    qkv = separate_qkv(dims, layer, bias=bias, paired=True)
    norms = _head_norms(dims, layer) if fields.flag("use_qk_norm", False) else None
    return LayerSpec(
        self_attention(dims, layer, qkv, "model.layers.{}.self_attn.o_proj", bias=bias, head_norms=norms, rope=rope),
        gated_mlp(dims, layer),
        layer_norm(dims, "model.layers.{}.input_layernorm", "attention_norm", layer, bias=False),
        wiring="parallel",
    )


def _head_norms(dims: Dimensions, layer: int) -> HeadNormsSpec:
    """Each head has a weight of its own, in the order of its rows."""

    def one(name: str, heads: int) -> NormSpec:
        eps, shape = dims.fields.number("layer_norm_eps", 1e-5), (heads, dims.head_dim)
        order = heads_layout(dims, heads)
        start = f"model.layers.{layer}.self_attn.{name}_norm"
        return NormSpec(start, f"{name}_norm", shape, eps, "layer", layer=layer, layout=order, gguf_layout=order)

    return HeadNormsSpec(one("q", dims.num_heads), one("k", dims.num_kv_heads))


def _from_gguf(model: GGUFModel) -> dict[str, Any]:
    scale = model.read.number_or_none("logit_scale")
    found = {} if scale is None else {"logit_scale": scale}
    return {**found, "use_qk_norm": "blk.0.attn_q_norm.weight" in model.tensors}


_DEFAULTS: dict[str, Any] = {"tie_word_embeddings": True, "layer_norm_eps": 1e-5}
COHERE = Family(_describe, _DEFAULTS, from_gguf=_from_gguf)
COHERE2 = Family(_describe2, {**_DEFAULTS, "sliding_window": 4096, "sliding_window_pattern": 4}, from_gguf=_from_gguf)
