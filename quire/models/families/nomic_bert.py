"""nomic-bert: BERT's order of norms with rotary positions and gated MLPs, under two sets of names."""

from typing import Any

from quire.core.errors import CheckpointError
from quire.models.families.bert import OTHER_TASKS
from quire.models.families.blocks import (
    fused_qkv,
    gated_mlp,
    layer_norm,
    projection,
    self_attention,
    separate_qkv,
    table,
)
from quire.models.families.dimensions import Dimensions
from quire.models.families.family import Family, GGUFModel
from quire.spec.layer import LayerSpec, MlpSpec
from quire.spec.matrix import MatrixSpec, Part
from quire.spec.model import EmbeddingSpec, ModelSpec
from quire.spec.rope import read_rope

_USUAL_THETA = 1000.0


def describe(dims: Dimensions) -> ModelSpec:
    fields, hidden = dims.fields, dims.hidden_size
    is_original = fields.has("n_embd")
    layer = _original_layer if is_original else _layer
    norm = "bert.emb_ln" if is_original else "bert.embeddings.LayerNorm"
    theta = fields.number("rotary_emb_base", _USUAL_THETA)
    return ModelSpec(
        architecture=dims.architecture,
        vocab_size=dims.vocab_size,
        hidden_size=hidden,
        max_position=dims.max_position,
        layers=tuple(layer(dims, index) for index in range(dims.num_layers)),
        embedding=EmbeddingSpec(
            table("bert.embeddings.word_embeddings", "words", dims.vocab_size, hidden),
            types=table("bert.embeddings.token_type_embeddings", "types", fields.size("type_vocab_size"), hidden),
            norm=layer_norm(dims, norm, "embedding_norm"),
        ),
        norm=None,
        ropes=(read_rope({**fields.values, "max_position_embeddings": dims.max_position}, dims.head_dim, theta=theta),),
        prefix="bert.",
        unused=OTHER_TASKS,
    )


def _layer(dims: Dimensions, layer: int) -> LayerSpec:
    prefix = f"bert.layers.{layer}"
    out = projection(dims, layer, f"{prefix}.self_attn.o_proj", "out", dims.num_heads * dims.head_dim)
    return LayerSpec(
        self_attention(dims, layer, separate_qkv(dims, layer, f"{prefix}.self_attn."), out, causal=False),
        gated_mlp(dims, layer, prefix=f"{prefix}.mlp."),
        layer_norm(dims, f"{prefix}.post_attention_layernorm", "after_attention_norm", layer),
        layer_norm(dims, f"{prefix}.post_mlp_layernorm", "after_mlp_norm", layer),
        wiring="post",
    )


def _original_layer(dims: Dimensions, layer: int) -> LayerSpec:
    """As the checkpoints on the hub name its tensors."""
    prefix, size = f"bert.encoder.layers.{layer}", dims.fields.size("n_inner")
    parts = (Part(f"{prefix}.mlp.fc12", "gate", size), Part(f"{prefix}.mlp.fc11", "up", size))
    mlp = MlpSpec(
        MatrixSpec(parts, dims.hidden_size, "rows", layer=layer),
        projection(dims, layer, f"{prefix}.mlp.fc2", "down", size),
        "silu",
        gated=True,
    )
    out = projection(dims, layer, f"{prefix}.attn.out_proj", "out", dims.hidden_size)
    return LayerSpec(
        self_attention(dims, layer, fused_qkv(dims, layer, f"{prefix}.attn.Wqkv"), out, causal=False),
        mlp,
        layer_norm(dims, f"{prefix}.norm1", "after_attention_norm", layer),
        layer_norm(dims, f"{prefix}.norm2", "after_mlp_norm", layer),
        wiring="post",
    )


def _adapt(values: dict[str, Any]) -> dict[str, Any]:
    """Refuses the original's variants that would run and be wrong."""
    wrong = {
        name: values[name]
        for name, right in _ORIGINAL.items()
        if "n_embd" in values and values.get(name, right) not in (right, None)
    }
    if wrong:
        name, value = next(iter(wrong.items()))
        raise CheckpointError(
            f"the config has {name} as {value!r}; quire runs nomic-bert with {_ORIGINAL[name]!r} there."
        )
    return values


def _from_gguf(model: GGUFModel) -> dict[str, Any]:
    """Its tensors are the original's."""
    return {"n_embd": model.shape["hidden_size"], "n_inner": model.shape["intermediate_size"]}


_ORIGINAL: dict[str, Any] = {
    "activation_function": "swiglu",
    "prenorm": False,
    "qkv_proj_bias": False,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "use_rms_norm": False,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "parallel_block": False,
}
FAMILY = Family(describe, {"layer_norm_epsilon": 1e-12, "type_vocab_size": 2}, _adapt, _from_gguf)
