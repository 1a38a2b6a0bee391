"""Qwen3: no biases; every query and key head is normed before it is turned."""

from quire.models.families.blocks import attention, decoder, gated_mlp, head_norms, pre_norms
from quire.models.families.dimensions import Dimensions
from quire.models.families.family import Family
from quire.spec.layer import LayerSpec
from quire.spec.model import ModelSpec


def describe(dims: Dimensions) -> ModelSpec:
    return decoder(
        dims,
        lambda layer: LayerSpec(
            attention(dims, layer, head_norms=head_norms(dims, layer)),
            gated_mlp(dims, layer),
            **pre_norms(dims, layer),
        ),
    )


FAMILY = Family(describe, defaults={"use_sliding_window": False, "head_dim": 128})
