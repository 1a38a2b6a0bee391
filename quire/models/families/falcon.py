"""Falcon: one KV head or a few, attention and MLP side by side, queries together with the key they share.

The variants with ALiBi (falcon-rw) are refused; Falcon 3 is built like Llama.
"""

from typing import Any

from quire.core.errors import CheckpointError
from quire.models.families.blocks import decoder, fused_qkv, layer_norm, plain_mlp, self_attention, words
from quire.models.families.dimensions import Dimensions
from quire.models.families.family import Family, GGUFModel
from quire.spec.layer import LayerSpec
from quire.spec.layout import GroupedRows
from quire.spec.model import ModelSpec


def describe(dims: Dimensions) -> ModelSpec:
    if dims.fields.flag("alibi", False):
        raise CheckpointError(f"{dims.source} is a Falcon with ALiBi positions; quire runs those with rotary ones.")
    return decoder(
        dims,
        lambda layer: _layer(dims, layer),
        embedding=words(dims, "transformer.word_embeddings"),
        norm=layer_norm(dims, "transformer.ln_f", "output_norm"),
        prefix="transformer.",
    )


def _layer(dims: Dimensions, layer: int) -> LayerSpec:
    fields, prefix = dims.fields, f"transformer.h.{layer}"
    inner = fields.size_or_none("ffn_hidden_size", "intermediate_size") or 4 * dims.hidden_size
    bias, is_new = fields.flag("bias", False), fields.flag("new_decoder_architecture", False)
    parallel = is_new or fields.flag("parallel_attn", True)
    order = GroupedRows(dims.num_kv_heads, dims.num_heads // dims.num_kv_heads, dims.head_dim)
    qkv = fused_qkv(dims, layer, f"{prefix}.self_attention.query_key_value", bias=bias, layout=order)
    names = (f"{prefix}.mlp.dense_h_to_4h", f"{prefix}.mlp.dense_4h_to_h")
    first, second = "input_layernorm", None if parallel else "post_attention_layernorm"
    roles = ("attention_norm", "mlp_norm")
    if parallel and (fields.size_or_none("num_ln_in_parallel_attn") or (2 if is_new else 1)) == 2:
        first, second, roles = "ln_attn", "ln_mlp", ("attention_norm_2", "attention_norm")  # GGUF's words for them
    return LayerSpec(
        self_attention(dims, layer, qkv, f"{prefix}.self_attention.dense", bias=bias),
        plain_mlp(dims, layer, names, inner, bias=bias),
        layer_norm(dims, f"{prefix}.{first}", roles[0], layer),
        None if second is None else layer_norm(dims, f"{prefix}.{second}", roles[1], layer),
        wiring="parallel" if parallel else "sequential",
    )


def _adapt(values: dict[str, Any]) -> dict[str, Any]:
    """The number of KV heads, which its configs give in other words."""
    if values.get("new_decoder_architecture"):
        heads = values.get("num_kv_heads") or values.get("num_attention_heads")
    else:
        heads = 1 if values.get("multi_query", True) else values.get("num_attention_heads")
    return {**values, "num_key_value_heads": heads}


def _from_gguf(model: GGUFModel) -> dict[str, Any]:
    heads = model.shape["num_key_value_heads"]
    is_new = "blk.0.attn_norm_2.weight" in model.tensors or heads not in (1, model.shape["num_attention_heads"])
    norms = 2 if "blk.0.attn_norm_2.weight" in model.tensors else 1
    return {
        "new_decoder_architecture": is_new,
        "num_kv_heads": heads,
        "multi_query": heads == 1,
        "num_ln_in_parallel_attn": norms,
        "bias": "blk.0.attn_qkv.bias" in model.tensors,
    }


FAMILY = Family(
    describe,
    {"tie_word_embeddings": True, "layer_norm_epsilon": 1e-5, "max_position_embeddings": 2048},
    _adapt,
    _from_gguf,
)
