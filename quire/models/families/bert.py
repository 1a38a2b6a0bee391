"""BERT, MiniLM and their relatives; RoBERTa and XLM-R differ in where their positions begin and how they classify."""

from dataclasses import replace
from typing import Any

from quire.core.errors import CheckpointError
from quire.models.families.blocks import (
    activation,
    classifier,
    layer_norm,
    model,
    plain_mlp,
    self_attention,
    separate_qkv,
    square,
    table,
)
from quire.models.families.dimensions import Dimensions, longest_position
from quire.models.families.family import Family, GGUFModel
from quire.spec.layer import LayerSpec
from quire.spec.model import EmbeddingSpec, ModelSpec

_APPROXIMATE = ("gelu", "gelu_tanh")
_OLD_NAMES = (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias"))
"""TensorFlow's words, in the oldest checkpoints."""
OTHER_TASKS = (r".*position_ids", r"(\w+\.)?pooler\..*", r"(cls|lm_head|classifier|qa_outputs)\..*")
"""Buffers, poolers and heads for tasks that nobody asks for."""
_NAMES = ("self.query", "self.key", "self.value", "output.dense", "output.LayerNorm")
"""Of attention's matrices and the norm after them."""
OWN_HEAD = ("classifier.dense", "classifier.out_proj")
"""Of the two matrices that RoBERTa and MPNet classify by."""


def _bert(dims: Dimensions) -> ModelSpec:
    _check(dims)
    return encoder(dims, "bert", _NAMES, ("bert.pooler.dense", "classifier"))


def _roberta(dims: Dimensions) -> ModelSpec:
    _check(dims)
    return encoder(dims, "roberta", _NAMES, OWN_HEAD, dims.fields.size_or_none("pad_token_id", least=0) or 0)


def encoder(
    dims: Dimensions, prefix: str, names: tuple[str, ...], head: tuple[str, str], padding: int | None = None
) -> ModelSpec:
    """Learned positions and token types, LayerNorm after each half of a layer, biases everywhere.

    `padding` is the token whose position the first one's follows, in families that count so.
    """
    fields, hidden, start = dims.fields, dims.hidden_size, f"{prefix}.embeddings"
    rows, types = longest_position(fields), fields.size_or_none("type_vocab_size", least=0)
    first_position = 0 if padding is None else padding + 1
    if rows <= first_position:
        raise CheckpointError(
            f"{dims.source} gives max_position_embeddings as {rows} and pad_token_id as {padding}, after which no "
            "positions are left."
        )
    return model(
        replace(dims, max_position=rows - first_position) if padding is not None else dims,
        lambda layer: _layer(dims, f"{prefix}.encoder.layer.{layer}", names, layer),
        embedding=EmbeddingSpec(
            table(f"{start}.word_embeddings", "words", dims.vocab_size, hidden),
            table(f"{start}.position_embeddings", "positions", rows, hidden),
            first_position,
            table(f"{start}.token_type_embeddings", "types", types, hidden) if types else None,
            layer_norm(dims, f"{start}.LayerNorm", "embedding_norm"),
        ),
        norm=None,
        classifier=classifier(dims, head[1], "cls", dense=square(dims, head[0], "classifier_dense")),
        prefix=f"{prefix}.",
        renamed=_OLD_NAMES,
        unused=OTHER_TASKS,
    )


def _layer(dims: Dimensions, prefix: str, names: tuple[str, ...], layer: int) -> LayerSpec:
    *of_qkv, out, after = [f"{prefix}.attention.{name}" for name in names]
    qkv = separate_qkv(dims, layer, "", (of_qkv[0], of_qkv[1], of_qkv[2]), bias=True)
    mlp = (f"{prefix}.intermediate.dense", f"{prefix}.output.dense")
    return LayerSpec(
        self_attention(dims, layer, qkv, out, bias=True, rope=None, causal=False),
        plain_mlp(dims, layer, mlp, dims.fields.size("intermediate_size")),
        layer_norm(dims, after, "after_attention_norm", layer),
        layer_norm(dims, f"{prefix}.output.LayerNorm", "after_mlp_norm", layer),
        wiring="post",
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


DEFAULTS: dict[str, Any] = {
    "num_hidden_layers": 12,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}
BERT = Family(_bert, {**DEFAULTS, "vocab_size": 30_522}, from_gguf=types_from_gguf)
ROBERTA = Family(_roberta, {**DEFAULTS, "pad_token_id": 1})
