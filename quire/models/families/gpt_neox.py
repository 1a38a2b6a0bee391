"""GPT-NeoX and Pythia: attention and MLP side by side, LayerNorm, queries, keys and values of a head together."""

from typing import Any

from quire.models.families.blocks import decoder, fused_qkv, layer_norm, plain_mlp, self_attention, words
from quire.models.families.dimensions import Dimensions, without_shared_heads
from quire.models.families.family import Family, GGUFModel
from quire.models.loading.gguf_rope import turned_share
from quire.spec.layer import LayerSpec
from quire.spec.layout import GroupedRows
from quire.spec.model import ModelSpec
from quire.spec.rope import read_rope


def describe(dims: Dimensions) -> ModelSpec:
    values = dims.fields.values
    return decoder(
        dims,
        lambda layer: _layer(dims, layer),
        embedding=words(dims, "gpt_neox.embed_in"),
        norm=layer_norm(dims, "gpt_neox.final_layer_norm", "output_norm"),
        head_name="embed_out",
        ropes=(
            read_rope(values, dims.head_dim, theta=values.get("rotary_emb_base", 10_000), partial=values["rotary_pct"]),
        ),
        prefix="gpt_neox.",
        unused=(r"gpt_neox\.layers\.\d+\.attention\.(bias|masked_bias)",),
    )


def _layer(dims: Dimensions, layer: int) -> LayerSpec:
    fields, prefix = dims.fields, f"gpt_neox.layers.{layer}"
    bias = fields.flag("attention_bias", True)
    order = GroupedRows(dims.num_heads, 1, dims.head_dim)
    qkv = fused_qkv(dims, layer, f"{prefix}.attention.query_key_value", bias=bias, layout=order)
    names = (f"{prefix}.mlp.dense_h_to_4h", f"{prefix}.mlp.dense_4h_to_h")
    return LayerSpec(
        self_attention(dims, layer, qkv, f"{prefix}.attention.dense", bias=bias),
        plain_mlp(dims, layer, names, fields.size("intermediate_size")),
        layer_norm(dims, f"{prefix}.input_layernorm", "attention_norm", layer),
        layer_norm(dims, f"{prefix}.post_attention_layernorm", "mlp_norm", layer),
        wiring="parallel" if fields.flag("use_parallel_residual", True) else "sequential",
    )


def _from_gguf(model: GGUFModel) -> dict[str, Any]:
    return {
        "use_parallel_residual": model.read.flag("use_parallel_residual", True),
        "attention_bias": "blk.0.attn_qkv.bias" in model.tensors,
        "partial_rotary_factor": turned_share(model.read, model.shape["head_dim"]),
    }


FAMILY = Family(
    describe,
    {"rotary_pct": 0.25, "tie_word_embeddings": False, "layer_norm_eps": 1e-5},
    without_shared_heads,
    from_gguf=_from_gguf,
)
