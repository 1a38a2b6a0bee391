"""SmolLM3: Llama's wiring, but every fourth layer turns no heads (NoPE)."""

from quire.models.families.blocks import attention, decoder, gated_mlp, pre_norms, turned_layers
from quire.models.families.dimensions import Dimensions
from quire.models.families.family import Family
from quire.spec.layer import LayerSpec
from quire.spec.model import ModelSpec


def describe(dims: Dimensions) -> ModelSpec:
    mlp_bias, turned = dims.fields.flag("mlp_bias", False), turned_layers(dims)
    return decoder(
        dims,
        lambda layer: LayerSpec(
            attention(dims, layer, gguf_paired=True, rope=0 if turned[layer] else None),
            gated_mlp(dims, layer, bias=mlp_bias),
            **pre_norms(dims, layer),
        ),
    )


FAMILY = Family(describe, defaults={"use_sliding_window": False, "tie_word_embeddings": True})
