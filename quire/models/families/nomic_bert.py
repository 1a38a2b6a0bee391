"""nomic-bert: BERT's order of norms with rotary positions and gated MLPs."""

from typing import Any

from quire.core.errors import CheckpointError
from quire.models.families.bert import OTHER_TASKS, types_from_gguf
from quire.models.families.blocks import fused_qkv, layer_norm, projection, self_attention, table
from quire.models.families.dimensions import Dimensions
from quire.models.families.family import Family
from quire.spec.layer import LayerSpec, MlpSpec
from quire.spec.matrix import MatrixSpec, Part
from quire.spec.model import EmbeddingSpec, ModelSpec
from quire.spec.rope import read_rope

_USUAL_THETA = 1000.0


def describe(dims: Dimensions) -> ModelSpec:
    fields, hidden = dims.fields, dims.hidden_size
    theta = fields.number("rotary_emb_base", _USUAL_THETA)
    types = fields.size_or_none("type_vocab_size", least=0)
    return ModelSpec(
        architecture=dims.architecture,
        vocab_size=dims.vocab_size,
        hidden_size=hidden,
        max_position=dims.max_position,
        layers=tuple(_layer(dims, layer) for layer in range(dims.num_layers)),
        embedding=EmbeddingSpec(
            table("bert.embeddings.word_embeddings", "words", dims.vocab_size, hidden),
            types=table("bert.embeddings.token_type_embeddings", "types", types, hidden) if types else None,
            norm=layer_norm(dims, "bert.emb_ln", "embedding_norm"),
        ),
        norm=None,
        ropes=(read_rope({**fields.values, "max_position_embeddings": dims.max_position}, dims.head_dim, theta=theta),),
        prefix="bert.",
        unused=OTHER_TASKS,
    )


def _layer(dims: Dimensions, layer: int) -> LayerSpec:
    prefix, size = f"bert.encoder.layers.{layer}", dims.fields.size("intermediate_size", "n_inner")
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
    """Refuses the variants that would run and be wrong."""
    for name, right in _RIGHT.items():
        value = values.get(name, right)
        if value not in (right, None):
            raise CheckpointError(f"the config has {name} as {value!r}; quire runs nomic-bert with {right!r} there.")
    return values


_RIGHT: dict[str, Any] = {
    "activation_function": "swiglu",
    "hidden_act": "silu",
    "prenorm": False,
    "qkv_proj_bias": False,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "use_rms_norm": False,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "parallel_block": False,
}
FAMILY = Family(describe, {"layer_norm_epsilon": 1e-12, "type_vocab_size": 2}, _adapt, types_from_gguf)
