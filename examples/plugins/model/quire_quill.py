"""A model family for quire: `quill`, which is wired like Llama, with biases on q, k and v and on the output."""

from quire.models.families.blocks import attention, decoder, gated_mlp, pre_norms
from quire.models.families.dimensions import Dimensions
from quire.models.families.family import Family
from quire.spec.layer import LayerSpec
from quire.spec.model import ModelSpec

QUIRE_PLUGIN_API = 1


def describe(dims: Dimensions) -> ModelSpec:
    """From a config to a spec. Everything else follows from the spec: names of tensors, memory, modules, shards."""
    return decoder(
        dims,
        lambda layer: LayerSpec(
            attention(dims, layer, qkv_bias=True, out_bias=True),
            gated_mlp(dims, layer),
            **pre_norms(dims, layer),
        ),
    )


FAMILY = Family(describe, defaults={"rms_norm_eps": 1e-6})
"""`defaults` are what the family's own class fills in where a config leaves a field out."""
