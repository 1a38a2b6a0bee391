"""ModernBERT: an encoder built like today's decoders: rotary positions, gated MLPs, windows to both sides."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from quire.models.families.bert import OTHER_TASKS
from quire.models.families.blocks import (
    classifier,
    fused_qkv,
    gated_mlp,
    layer_norm,
    model,
    self_attention,
    square,
    table,
)
from quire.models.families.dimensions import Dimensions
from quire.models.families.family import Family
from quire.spec.layer import LayerSpec
from quire.spec.model import EmbeddingSpec, ModelSpec
from quire.spec.norm import NormSpec
from quire.spec.rope import RopeSpec, read_rope

_FULL, _SLIDING = 0, 1


def describe(dims: Dimensions) -> ModelSpec:
    fields = dims.fields
    return model(
        dims,
        lambda layer: _layer(dims, layer),
        embedding=EmbeddingSpec(
            table("model.embeddings.tok_embeddings", "words", dims.vocab_size, dims.hidden_size),
            norm=_norm(dims, "model.embeddings.norm", "embedding_norm"),
        ),
        norm=_norm(dims, "model.final_norm", "output_norm"),
        ropes=_ropes(fields.values, dims.head_dim),
        classifier=classifier(
            dims,
            "classifier",
            "mean" if fields.text("classifier_pooling", "cls") == "mean" else "cls",
            dense=square(dims, "head.dense", "classifier_dense", bias=fields.flag("classifier_bias", False)),
            activation=fields.text("classifier_activation", "gelu"),
            norm=_norm(dims, "head.norm", "classifier_norm"),
        ),
        unused=(*OTHER_TASKS, r"(head|decoder)\..*"),
    )


def _layer(dims: Dimensions, layer: int) -> LayerSpec:
    fields, prefix = dims.fields, f"model.layers.{layer}"
    bias, rope = fields.flag("attention_bias", False), _FULL if dims.windows[layer] is None else _SLIDING
    qkv = fused_qkv(dims, layer, f"{prefix}.attn.Wqkv", bias=bias)
    return LayerSpec(
        self_attention(dims, layer, qkv, f"{prefix}.attn.Wo", bias=bias, rope=rope, causal=False),
        gated_mlp(dims, layer, ("Wi", "Wo"), bias=fields.flag("mlp_bias", False), usual="gelu"),
        # the embedding's norm does for the first layer's
        _norm(dims, f"{prefix}.attn_norm", "attention_norm", layer) if layer else None,
        _norm(dims, f"{prefix}.mlp_norm", "mlp_norm", layer),
    )


def _norm(dims: Dimensions, name: str, role: str, layer: int | None = None) -> NormSpec:
    return layer_norm(dims, name, role, layer, bias=dims.fields.flag("norm_bias", False))


def _ropes(values: Mapping[str, Any], head_dim: int) -> tuple[RopeSpec, ...]:
    """Angles of layers without and with a window. Newer configs name both kinds, older ones two bases."""
    by_kind = values.get("rope_parameters")
    if isinstance(by_kind, dict) and "full_attention" in by_kind:
        kinds = ("full_attention", "sliding_attention")
        return tuple(read_rope({**values, "rope_scaling": by_kind.get(kind)}, head_dim) for kind in kinds)
    bases = (values.get("global_rope_theta", 160_000.0), values.get("local_rope_theta", 10_000.0))
    return tuple(replace(read_rope(values, head_dim), theta=float(base)) for base in bases)


def _adapt(values: dict[str, Any]) -> dict[str, Any]:
    """Windows, which its configs give as the whole width and by every so-many-th layer without one."""
    layers, every = values.get("num_hidden_layers"), values.get("global_attn_every_n_layers", 3)
    adapted = {**values, "sliding_window": values.get("local_attention", 128) // 2}
    if "layer_types" not in values and isinstance(layers, int) and isinstance(every, int) and every > 0:
        adapted["layer_types"] = ["sliding_attention" if layer % every else "full_attention" for layer in range(layers)]
    return adapted


_DEFAULTS: dict[str, Any] = {"norm_eps": 1e-5, "max_position_embeddings": 8192}
FAMILY = Family(describe, _DEFAULTS, _adapt)
