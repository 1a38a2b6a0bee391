"""nomic-bert: BERT's order of norms with rotary positions and gated MLPs."""

from typing import Any

from quire.core.errors import CheckpointError
from quire.models.families.bert import OTHER_TASKS, types_from_gguf
from quire.models.families.blocks import fused_qkv, gated_mlp, layer_norm, model, self_attention, table
from quire.models.families.dimensions import Dimensions
from quire.models.families.family import Family
from quire.spec.layer import LayerSpec
from quire.spec.model import EmbeddingSpec, ModelSpec
from quire.spec.rope import read_rope

_USUAL_THETA = 1000.0


def describe(dims: Dimensions) -> ModelSpec:
    fields, hidden = dims.fields, dims.hidden_size
    theta = fields.number("rotary_emb_base", _USUAL_THETA)
    types = fields.size_or_none("type_vocab_size", least=0)
    return model(
        dims,
        lambda layer: _layer(dims, layer),
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
    prefix = f"bert.encoder.layers.{layer}"
    qkv = fused_qkv(dims, layer, f"{prefix}.attn.Wqkv")
    return LayerSpec(
        self_attention(dims, layer, qkv, f"{prefix}.attn.out_proj", causal=False),
        gated_mlp(dims, layer, ("fc12", "fc11", "fc2"), prefix=f"{prefix}.mlp."),
        layer_norm(dims, f"{prefix}.norm1", "after_attention_norm", layer),
        layer_norm(dims, f"{prefix}.norm2", "after_mlp_norm", layer),
        wiring="post",
    )


def _adapt(values: dict[str, Any]) -> dict[str, Any]:
    """Refuses the variants that would run and be wrong; what it calls swiglu is a gate of silu."""
    for name, right in _RIGHT.items():
        value = values.get(name, right)
        if value not in (right, None):
            raise CheckpointError(f"the config has {name} as {value!r}; quire runs nomic-bert with {right!r} there.")
    return {**values, "hidden_act": "silu"}


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
