"""BERT, MiniLM and their relatives; RoBERTa and XLM-R differ only in where their positions begin."""

from quire.core.errors import CheckpointError
from quire.layers.embedding import Embedding
from quire.layers.linear import Linear, Source
from quire.layers.norm import LayerNorm
from quire.layers.weights import WeightPolicy
from quire.models import parts
from quire.models.encoder import Encoder, EncoderAttention, EncoderLayer
from quire.models.loading.hf_config import HFShape
from quire.models.plain_mlp import PlainMLP

_APPROXIMATE = {"gelu": "none", "gelu_tanh": "tanh"}


def build(shape: HFShape, policy: WeightPolicy) -> Encoder:
    """Learned positions and token types, LayerNorm after each half of a layer, biases everywhere."""
    fields = shape.fields
    _check(shape)
    table = fields.size("max_position_embeddings")
    return Encoder(
        parts.embedding(shape, policy, "embeddings.word_embeddings"),
        Embedding("embeddings.position_embeddings", table, shape.hidden_size, policy),
        Embedding("embeddings.token_type_embeddings", fields.size("type_vocab_size"), shape.hidden_size, policy),
        _norm(shape, "embeddings.LayerNorm", policy),
        [_layer(shape, layer, policy) for layer in range(shape.num_layers)],
        first_position=table - shape.max_position,
    )


def _layer(shape: HFShape, layer: int, policy: WeightPolicy) -> EncoderLayer:
    prefix, size, inner = f"encoder.layer.{layer}", shape.hidden_size, shape.fields.size("intermediate_size")

    def linear(columns: int, rows: int, *names: str) -> Linear:
        return Linear([Source(f"{prefix}.{name}", rows) for name in names], columns, policy, bias=True)

    attention = EncoderAttention(
        linear(size, size, *(f"attention.self.{name}" for name in ("query", "key", "value"))),
        linear(size, size, "attention.output.dense"),
        shape.num_heads,
        shape.head_dim,
    )
    mlp = PlainMLP(
        linear(size, inner, "intermediate.dense"),
        linear(inner, size, "output.dense"),
        parts.activation(shape),
    )
    norms = (
        _norm(shape, f"{prefix}.attention.output.LayerNorm", policy),
        _norm(shape, f"{prefix}.output.LayerNorm", policy),
    )
    return EncoderLayer(attention, mlp, norms)


def _norm(shape: HFShape, name: str, policy: WeightPolicy) -> LayerNorm:
    return LayerNorm(name, shape.hidden_size, shape.fields.number("layer_norm_eps", 1e-12), policy)


def _check(shape: HFShape) -> None:
    """Refuse the variants that would run and be wrong."""
    fields = shape.fields
    kind = fields.text("position_embedding_type", "absolute")
    if kind != "absolute":
        raise CheckpointError(f"{fields.source} has positions of type {kind!r}; quire's encoders have absolute ones.")
    if fields.flag("is_decoder", False):
        raise CheckpointError(f"{fields.source} is a {shape.model_type} that decodes; quire has it as an encoder.")
    if parts.activation(shape) not in _APPROXIMATE:
        name = fields.text("hidden_act", "")
        raise CheckpointError(f"{fields.source} has the activation {name!r}; quire's encoders have gelu and gelu_new.")
