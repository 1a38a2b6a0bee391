"""SmolLM3: Llama's wiring, but every fourth layer turns no heads (NoPE)."""

from quire.core.errors import CheckpointError
from quire.models.families.blocks import attention, decoder, gated_mlp, pre_norms
from quire.models.families.dimensions import Dimensions
from quire.models.families.family import Family
from quire.spec.layer import LayerSpec
from quire.spec.model import ModelSpec


def describe(dims: Dimensions) -> ModelSpec:
    mlp_bias, turned = dims.fields.flag("mlp_bias", False), _turned_layers(dims)
    return decoder(
        dims,
        lambda layer: LayerSpec(
            attention(dims, layer, gguf_paired=True, rope=0 if turned[layer] else None),
            gated_mlp(dims, layer, bias=mlp_bias),
            **pre_norms(dims, layer),
        ),
    )


def _turned_layers(dims: Dimensions) -> list[bool]:
    """Whether each layer turns its heads; the config's list has 1 where it does, whatever its name says."""
    given = dims.fields.values.get("no_rope_layers")
    if given is None:
        every = dims.fields.size_or_none("no_rope_layer_interval") or 4
        return [(layer + 1) % every != 0 for layer in range(dims.num_layers)]
    if not isinstance(given, list) or len(given) != dims.num_layers or not all(one in (0, 1) for one in given):
        raise CheckpointError(
            f"{dims.source} must give no_rope_layers as a list of {dims.num_layers} numbers, each 0 or 1."
        )
    return [bool(one) for one in given]


FAMILY = Family(describe, defaults={"use_sliding_window": False, "tie_word_embeddings": True})
