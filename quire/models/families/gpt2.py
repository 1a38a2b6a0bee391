"""GPT-2: learned positions, LayerNorm with bias, a plain MLP; its checkpoints store matrices transposed."""

from quire.models.families.blocks import decoder, fused_qkv, layer_norm, plain_mlp, self_attention, table
from quire.models.families.dimensions import Dimensions, without_shared_heads
from quire.models.families.family import Family
from quire.spec.layer import LayerSpec
from quire.spec.layout import TRANSPOSED
from quire.spec.model import EmbeddingSpec, ModelSpec


def describe(dims: Dimensions) -> ModelSpec:
    return decoder(
        dims,
        lambda layer: _layer(dims, layer),
        embedding=EmbeddingSpec(
            table("transformer.wte", "words", dims.vocab_size, dims.hidden_size),
            table("transformer.wpe", "positions", dims.max_position, dims.hidden_size),
        ),
        norm=layer_norm(dims, "transformer.ln_f", "output_norm"),
        ropes=(),
        prefix="transformer.",
        unused=(r"transformer\.h\.\d+\.attn\.(bias|masked_bias)",),
    )


def _layer(dims: Dimensions, layer: int) -> LayerSpec:
    prefix = f"transformer.h.{layer}"
    qkv = fused_qkv(dims, layer, f"{prefix}.attn.c_attn", bias=True, layout=TRANSPOSED)
    names = (f"{prefix}.mlp.c_fc", f"{prefix}.mlp.c_proj")
    inner = dims.fields.size_or_none("n_inner", "intermediate_size") or 4 * dims.hidden_size
    return LayerSpec(
        self_attention(dims, layer, qkv, f"{prefix}.attn.c_proj", bias=True, layout=TRANSPOSED, rope=None),
        plain_mlp(dims, layer, names, inner, usual="gelu_new", layout=TRANSPOSED),
        layer_norm(dims, f"{prefix}.ln_1", "attention_norm", layer),
        layer_norm(dims, f"{prefix}.ln_2", "mlp_norm", layer),
    )


FAMILY = Family(
    describe, defaults={"tie_word_embeddings": True, "layer_norm_epsilon": 1e-5}, adapt=without_shared_heads
)
