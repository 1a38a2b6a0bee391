"""OLMo 2: norms of what attention and MLP add and none before them; queries and keys are normed over all heads."""

from typing import Any

from quire.core.errors import CheckpointError
from quire.models.families.blocks import attention, decoder, gated_mlp, norm
from quire.models.families.dimensions import Dimensions
from quire.models.families.family import Family, GGUFModel
from quire.spec.layer import HeadNormsSpec, LayerSpec
from quire.spec.model import ModelSpec


def describe(dims: Dimensions) -> ModelSpec:
    return decoder(dims, lambda layer: _layer(dims, layer))


def _layer(dims: Dimensions, layer: int) -> LayerSpec:
    prefix = f"model.layers.{layer}"
    sizes = {"q": dims.num_heads * dims.head_dim, "k": dims.num_kv_heads * dims.head_dim}
    query, key = (
        norm(dims, f"{prefix}.self_attn.{name}_norm", f"{name}_norm", layer, size=size) for name, size in sizes.items()
    )
    return LayerSpec(
        attention(dims, layer, head_norms=HeadNormsSpec(query, key, "all")),
        gated_mlp(dims, layer),
        added_attention_norm=norm(dims, f"{prefix}.post_attention_layernorm", "added_attention_norm", layer),
        added_mlp_norm=norm(dims, f"{prefix}.post_feedforward_layernorm", "added_mlp_norm", layer),
    )


def _from_gguf(model: GGUFModel) -> dict[str, Any]:
    """Files of OLMo 3 call themselves OLMo 2; its windows come with angles of their own."""
    if model.read.size_or_none("attention.sliding_window", least=0):
        raise CheckpointError(f"{model.read.source} is an OLMo 3, whose layers have windows; quire runs OLMo 2.")
    return {}


FAMILY = Family(describe, from_gguf=_from_gguf)
