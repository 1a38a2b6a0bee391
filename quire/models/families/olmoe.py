"""OLMoE: Llama's wiring with queries and keys normed over all heads, and experts in place of every MLP."""

from quire.core.errors import CheckpointError
from quire.core.routing import Routing
from quire.models.families.blocks import attention, decoder, norm, pre_norms
from quire.models.families.dimensions import Dimensions
from quire.models.families.experts import experts, gguf_experts
from quire.models.families.family import Family
from quire.spec.layer import HeadNormsSpec, LayerSpec
from quire.spec.model import ModelSpec


def describe(dims: Dimensions) -> ModelSpec:
    fields = dims.fields
    if fields.number_or_none("clip_qkv") is not None:
        raise CheckpointError(f"{dims.source} clips queries, keys and values (clip_qkv), which quire does not.")
    routing = Routing(fields.size("num_experts_per_tok"), renormalize=fields.flag("norm_topk_prob", False))
    size = fields.size("intermediate_size")
    return decoder(
        dims,
        lambda layer: LayerSpec(
            attention(dims, layer, head_norms=_head_norms(dims, layer)),
            experts(dims, layer, routing, size=size),
            **pre_norms(dims, layer),
        ),
    )


def _head_norms(dims: Dimensions, layer: int) -> HeadNormsSpec:
    sizes = {"q": dims.num_heads * dims.head_dim, "k": dims.num_kv_heads * dims.head_dim}
    query, key = (
        norm(dims, f"model.layers.{layer}.self_attn.{name}_norm", f"{name}_norm", layer, size=size)
        for name, size in sizes.items()
    )
    return HeadNormsSpec(query, key, "all")


FAMILY = Family(describe, defaults={"num_experts": 64, "num_experts_per_tok": 8}, from_gguf=gguf_experts)
