"""StableLM: LayerNorm with bias and heads that are turned in part; its largest model adds attention and MLP at once."""

from typing import Any

from quire.core.errors import CheckpointError
from quire.models.families.blocks import attention, decoder, gated_mlp, layer_norm
from quire.models.families.dimensions import Dimensions
from quire.models.families.family import Family, GGUFModel
from quire.models.loading.gguf_rope import turned_share
from quire.spec.layer import HeadNormsSpec, LayerSpec
from quire.spec.model import ModelSpec
from quire.spec.norm import NormSpec
from quire.spec.rope import read_rope


def describe(dims: Dimensions) -> ModelSpec:
    return decoder(
        dims,
        lambda layer: _layer(dims, layer),
        norm=layer_norm(dims, "model.norm", "output_norm"),
        ropes=(read_rope(dims.fields.values, dims.head_dim, partial=0.25),),
    )


def _layer(dims: Dimensions, layer: int) -> LayerSpec:
    fields, prefix = dims.fields, f"model.layers.{layer}"
    parallel = fields.flag("use_parallel_residual", False)
    norms = _head_norms(dims, layer) if fields.flag("qk_layernorm", False) else None
    return LayerSpec(
        attention(dims, layer, qkv_bias=fields.flag("use_qkv_bias", False), out_bias=False, head_norms=norms),
        gated_mlp(dims, layer),
        layer_norm(dims, f"{prefix}.input_layernorm", "attention_norm", layer),
        None if parallel else layer_norm(dims, f"{prefix}.post_attention_layernorm", "mlp_norm", layer),
        wiring="parallel" if parallel else "sequential",
    )


def _head_norms(dims: Dimensions, layer: int) -> HeadNormsSpec:
    """Each head has a weight of its own, in a tensor of its own."""

    def one(name: str, heads: int) -> NormSpec:
        role, eps = f"{name}_norm", dims.fields.number("layer_norm_eps", 1e-5)
        start = f"model.layers.{layer}.self_attn.{name}_layernorm"
        shape = (heads, dims.head_dim)
        return NormSpec(start, role, shape, eps, "layer", layer=layer, one_a_head=f"{start}.norms.{{}}")

    return HeadNormsSpec(one("q", dims.num_heads), one("k", dims.num_kv_heads))


def _from_gguf(model: GGUFModel) -> dict[str, Any]:
    if "blk.0.attn_q_norm.weight" in model.tensors:
        raise CheckpointError(
            f"{model.read.source} is a StableLM whose heads are normed; of those quire reads safetensors, not GGUF."
        )
    return {
        "use_qkv_bias": "blk.0.attn_q.bias" in model.tensors,
        "use_parallel_residual": "blk.0.ffn_norm.weight" not in model.tensors,
        "partial_rotary_factor": turned_share(model.read, model.shape["head_dim"]),
    }


FAMILY = Family(describe, defaults={"layer_norm_eps": 1e-5}, from_gguf=_from_gguf)
