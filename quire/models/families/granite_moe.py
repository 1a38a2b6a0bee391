"""Granite 3's experts: Granite's attention and multipliers, and one tensor for the matrices of all experts."""

from quire.core.routing import Routing
from quire.models.families.blocks import attention, decoder, pre_norms, words
from quire.models.families.dimensions import Dimensions
from quire.models.families.experts import fused_experts
from quire.models.families.family import Family
from quire.spec.layer import LayerSpec
from quire.spec.model import ModelSpec

_NAMES = tuple(
    f"model.layers.{{}}.block_sparse_moe.{name}" for name in ("router.layer", "input_linear", "output_linear")
)


def describe(dims: Dimensions) -> ModelSpec:
    fields = dims.fields
    router, up, down = _NAMES
    routing, size = Routing(fields.size("num_experts_per_tok")), fields.size("intermediate_size")
    return decoder(
        dims,
        lambda layer: LayerSpec(
            attention(dims, layer, scale=fields.number("attention_multiplier", 1.0)),
            fused_experts(dims, layer, routing, size=size, names=(router, up, down)),
            **pre_norms(dims, layer),
            residual_scale=fields.number("residual_multiplier", 1.0),
        ),
        embedding=words(dims, "model.embed_tokens", scale=fields.number("embedding_multiplier", 1.0)),
        logit_scale=1 / fields.number("logits_scaling", 1.0),
    )


FAMILY = Family(describe, defaults={"num_local_experts": 8, "num_experts_per_tok": 2})
