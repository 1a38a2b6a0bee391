"""BERT, MiniLM and their relatives; RoBERTa and XLM-R differ in where their positions begin and how they classify."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from quire.core.errors import CheckpointError
from quire.models.families.blocks import (
    CLASSIFIER,
    activation,
    labels,
    layer_norm,
    plain_mlp,
    problem,
    projection,
    self_attention,
    separate_qkv,
    table,
)
from quire.models.families.dimensions import Dimensions, longest_position
from quire.models.families.family import Family, GGUFModel
from quire.spec.layer import LayerSpec
from quire.spec.matrix import MatrixSpec, Part
from quire.spec.model import ClassifierSpec, EmbeddingSpec, ModelSpec

_APPROXIMATE = ("gelu", "gelu_tanh")
_OLD_NAMES = (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias"))
"""TensorFlow's words, in the oldest checkpoints."""
OTHER_TASKS = (r".*position_ids", r"(\w+\.)?pooler\..*", r"(cls|lm_head|classifier|qa_outputs)\..*")
"""Buffers, poolers and heads for tasks that nobody asks for."""


def _bert(dims: Dimensions) -> ModelSpec:
    return encoder(dims, "bert", lambda: classifier_of(dims, "bert.pooler.dense", "classifier"))


def _roberta(dims: Dimensions) -> ModelSpec:
    padding = dims.fields.size_or_none("pad_token_id", least=0) or 0
    dims = replace(dims, max_position=positions_after_padding(dims, padding))
    return encoder(dims, "roberta", lambda: classifier_of(dims, "classifier.dense", "classifier.out_proj"), padding + 1)


def encoder(
    dims: Dimensions, prefix: str, classifier: Callable[[], ClassifierSpec], first_position: int = 0
) -> ModelSpec:
    """Learned positions and token types, LayerNorm after each half of a layer, biases everywhere."""
    fields, hidden, start = dims.fields, dims.hidden_size, f"{prefix}.embeddings"
    _check(dims)
    types = fields.size_or_none("type_vocab_size", least=0)
    return ModelSpec(
        architecture=dims.architecture,
        vocab_size=dims.vocab_size,
        hidden_size=hidden,
        max_position=dims.max_position,
        layers=tuple(_layer(dims, f"{prefix}.encoder.layer.{layer}", layer) for layer in range(dims.num_layers)),
        embedding=EmbeddingSpec(
            table(f"{start}.word_embeddings", "words", dims.vocab_size, hidden),
            table(f"{start}.position_embeddings", "positions", longest_position(fields), hidden),
            first_position,
            table(f"{start}.token_type_embeddings", "types", types, hidden) if types else None,
            layer_norm(dims, f"{start}.LayerNorm", "embedding_norm"),
        ),
        norm=None,
        classifier=classifier() if dims.architecture.endswith(CLASSIFIER) else None,
        prefix=f"{prefix}.",
        renamed=_OLD_NAMES,
        unused=OTHER_TASKS,
    )


def positions_after_padding(dims: Dimensions, padding: int) -> int:
    """Their first token has the position after that of padding, so that the table holds fewer than it has rows."""
    rows = longest_position(dims.fields)
    if rows <= padding + 1:
        raise CheckpointError(
            f"{dims.source} gives max_position_embeddings as {rows} and pad_token_id as {padding}, after which no "
            "positions are left."
        )
    return rows - padding - 1


def _layer(dims: Dimensions, prefix: str, layer: int) -> LayerSpec:
    qkv = separate_qkv(dims, layer, f"{prefix}.attention.self.", ("query", "key", "value"), bias=True)
    out = projection(dims, layer, f"{prefix}.attention.output.dense", "out", dims.hidden_size, bias=True)
    names = (f"{prefix}.intermediate.dense", f"{prefix}.output.dense")
    return LayerSpec(
        self_attention(dims, layer, qkv, out, rope=None, causal=False),
        plain_mlp(dims, layer, names, dims.fields.size("intermediate_size")),
        layer_norm(dims, f"{prefix}.attention.output.LayerNorm", "after_attention_norm", layer),
        layer_norm(dims, f"{prefix}.output.LayerNorm", "after_mlp_norm", layer),
        wiring="post",
    )


def classifier_of(dims: Dimensions, dense: str, out: str) -> ClassifierSpec:
    """By the first token's hidden state, through one more matrix."""
    found = labels(dims)
    return ClassifierSpec(
        found,
        "cls",
        MatrixSpec((Part(out, "classifier", len(found)),), dims.hidden_size, "none", bias=True),
        MatrixSpec((Part(dense, "classifier_dense", dims.hidden_size),), dims.hidden_size, "none", bias=True),
        **problem(dims),
    )


def _check(dims: Dimensions) -> None:
    """Refuse the variants that would run and be wrong."""
    fields = dims.fields
    kind = fields.text("position_embedding_type", "absolute")
    if kind != "absolute":
        raise CheckpointError(f"{fields.source} has positions of type {kind!r}; quire's encoders have absolute ones.")
    if fields.flag("is_decoder", False):
        raise CheckpointError(f"{fields.source} is a {dims.architecture} that decodes; quire has it as an encoder.")
    if activation(dims, "gelu") not in _APPROXIMATE:
        name = fields.text("hidden_act", "")
        raise CheckpointError(f"{fields.source} has the activation {name!r}; quire's encoders have gelu and gelu_new.")


def types_from_gguf(model: GGUFModel) -> dict[str, Any]:
    """How many types tokens have, which only the tensor itself tells for sure."""
    types = model.tensors.get("token_types.weight")
    return {"type_vocab_size": types.shape[0] if types is not None and types.shape else 0}


_DEFAULTS: dict[str, Any] = {
    "num_hidden_layers": 12,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}
BERT = Family(_bert, {**_DEFAULTS, "vocab_size": 30_522}, from_gguf=types_from_gguf)
ROBERTA = Family(_roberta, {**_DEFAULTS, "pad_token_id": 1})
