"""Granite 3: Llama's wiring with four multipliers: of embeddings, scores, residuals and logits."""

from typing import Any

from quire.models.families.blocks import attention, decoder, gated_mlp, pre_norms, words
from quire.models.families.dimensions import Dimensions
from quire.models.families.family import Family, GGUFModel
from quire.spec.layer import LayerSpec
from quire.spec.model import ModelSpec

_IN_GGUF = {
    "embedding_multiplier": "embedding_scale",
    "attention_multiplier": "attention.scale",
    "residual_multiplier": "residual_scale",
    "logits_scaling": "logit_scale",
}


def describe(dims: Dimensions) -> ModelSpec:
    fields = dims.fields
    mlp_bias = fields.flag("mlp_bias", False)
    return decoder(
        dims,
        lambda layer: LayerSpec(
            attention(dims, layer, gguf_paired=True, scale=fields.number("attention_multiplier", 1.0)),
            gated_mlp(dims, layer, bias=mlp_bias),
            **pre_norms(dims, layer),
            residual_scale=fields.number("residual_multiplier", 1.0),
        ),
        embedding=words(dims, "model.embed_tokens", scale=fields.number("embedding_multiplier", 1.0)),
        logit_scale=1 / fields.number("logits_scaling", 1.0),
    )


def _from_gguf(model: GGUFModel) -> dict[str, Any]:
    found = {field: model.read.number_or_none(name) for field, name in _IN_GGUF.items()}
    return {field: value for field, value in found.items() if value is not None}


FAMILY = Family(describe, from_gguf=_from_gguf)
