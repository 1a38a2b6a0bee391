"""Mixtral: Mistral's attention, and experts in place of every MLP."""

from typing import Any

from quire.core.routing import Routing
from quire.models.families.blocks import attention, decoder, pre_norms
from quire.models.families.dimensions import Dimensions
from quire.models.families.experts import experts
from quire.models.families.family import Family
from quire.spec.layer import LayerSpec
from quire.spec.model import ModelSpec

_DEFAULTS: dict[str, Any] = {"num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2}


def describe(dims: Dimensions) -> ModelSpec:
    routing = Routing(dims.fields.size("num_experts_per_tok"))
    return decoder(
        dims,
        lambda layer: LayerSpec(
            attention(dims, layer, gguf_paired=True),
            experts(
                dims,
                layer,
                routing,
                size=dims.fields.size("intermediate_size"),
                prefix="model.layers.{}.block_sparse_moe.",
                names=("w1", "w3", "w2"),
            ),
            **pre_norms(dims, layer),
        ),
    )


FAMILY = Family(describe, defaults=_DEFAULTS)
