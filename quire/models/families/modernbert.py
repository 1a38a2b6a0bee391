"""ModernBERT: an encoder built like today's decoders: rotary positions, gated MLPs, windows to both sides."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from quire.models.families.bert import OTHER_TASKS
from quire.models.families.blocks import (
    CLASSIFIER,
    activation,
    fused_qkv,
    labels,
    layer_norm,
    problem,
    projection,
    self_attention,
    table,
)
from quire.models.families.dimensions import Dimensions
from quire.models.families.family import Family
from quire.spec.layer import LayerSpec, MlpSpec
from quire.spec.matrix import MatrixSpec, Part
from quire.spec.model import ClassifierSpec, EmbeddingSpec, ModelSpec
from quire.spec.norm import NormSpec
from quire.spec.rope import RopeSpec, read_rope

_FULL, _SLIDING = 0, 1


def describe(dims: Dimensions) -> ModelSpec:
    hidden = dims.hidden_size
    return ModelSpec(
        architecture=dims.architecture,
        vocab_size=dims.vocab_size,
        hidden_size=hidden,
        max_position=dims.max_position,
        layers=tuple(_layer(dims, layer) for layer in range(dims.num_layers)),
        embedding=EmbeddingSpec(
            table("model.embeddings.tok_embeddings", "words", dims.vocab_size, hidden),
            norm=_norm(dims, "model.embeddings.norm", "embedding_norm"),
        ),
        norm=_norm(dims, "model.final_norm", "output_norm"),
        ropes=_ropes(dims.fields.values, dims.head_dim),
        classifier=_classifier(dims) if dims.architecture.endswith(CLASSIFIER) else None,
        unused=(*OTHER_TASKS, r"(head|decoder)\..*"),
    )


def _layer(dims: Dimensions, layer: int) -> LayerSpec:
    fields, prefix, size = dims.fields, f"model.layers.{layer}", dims.fields.size("intermediate_size")
    bias, window = fields.flag("mlp_bias", False), dims.windows[layer]
    out = projection(
        dims, layer, f"{prefix}.attn.Wo", "out", dims.hidden_size, bias=fields.flag("attention_bias", False)
    )
    qkv = fused_qkv(dims, layer, f"{prefix}.attn.Wqkv", bias=fields.flag("attention_bias", False))
    up = MatrixSpec((Part(f"{prefix}.mlp.Wi", "gate_up", 2 * size),), dims.hidden_size, "rows", bias, layer)
    down = projection(dims, layer, f"{prefix}.mlp.Wo", "down", size, bias=bias)
    rope = _FULL if window is None else _SLIDING
    return LayerSpec(
        self_attention(dims, layer, qkv, out, rope=rope, causal=False),
        MlpSpec(up, down, activation(dims, "gelu"), gated=True),
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


def _classifier(dims: Dimensions) -> ClassifierSpec:
    fields, found = dims.fields, labels(dims)
    return ClassifierSpec(
        found,
        "mean" if fields.text("classifier_pooling", "cls") == "mean" else "cls",
        MatrixSpec((Part("classifier", "classifier", len(found)),), dims.hidden_size, "none", bias=True),
        MatrixSpec(
            (Part("head.dense", "classifier_dense", dims.hidden_size),),
            dims.hidden_size,
            "none",
            bias=fields.flag("classifier_bias", False),
        ),
        fields.text("classifier_activation", "gelu"),
        _norm(dims, "head.norm", "classifier_norm"),
        **problem(dims),
    )


def _adapt(values: dict[str, Any]) -> dict[str, Any]:
    """Windows, which its configs give as the whole width and by every so-many-th layer without one."""
    layers, every = values.get("num_hidden_layers"), values.get("global_attn_every_n_layers", 3)
    adapted = {**values, "sliding_window": values.get("local_attention", 128) // 2}
    if "layer_types" not in values and isinstance(layers, int) and isinstance(every, int) and every > 0:
        adapted["layer_types"] = ["sliding_attention" if layer % every else "full_attention" for layer in range(layers)]
    return adapted


_DEFAULTS: dict[str, Any] = {"norm_eps": 1e-5, "max_position_embeddings": 8192}
FAMILY = Family(describe, _DEFAULTS, _adapt)
