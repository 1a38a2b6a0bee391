"""GPT-2: learned positions, LayerNorm with bias, a plain MLP; its checkpoints store matrices transposed."""

from quire.layers.embedding import Embedding
from quire.layers.linear import Linear, Source
from quire.layers.norm import LayerNorm
from quire.layers.weights import WeightPolicy
from quire.models import parts
from quire.models.decoder import Decoder, DecoderLayer, SelfAttention
from quire.models.loading.hf_config import HFShape
from quire.models.plain_mlp import PlainMLP


def build(shape: HFShape, policy: WeightPolicy) -> Decoder:
    layers = [_layer(shape, layer, policy) for layer in range(shape.num_layers)]
    return Decoder(
        parts.embedding(shape, policy, "transformer.wte"),
        layers,
        _norm(shape, "transformer.ln_f", policy),
        parts.head(shape, policy, tied=shape.fields.flag("tie_word_embeddings", True)),
        positions=Embedding("transformer.wpe", shape.max_position, shape.hidden_size, policy),
    )


def _layer(shape: HFShape, layer: int, policy: WeightPolicy) -> DecoderLayer:
    policy = policy.of_layer(layer)
    prefix, size = f"transformer.h.{layer}", shape.hidden_size

    def linear(name: str, rows: int, columns: int) -> Linear:
        return Linear([Source(f"{prefix}.{name}", rows)], columns, policy, bias=True, transposed=True)

    inner = shape.fields.size_or_none("n_inner") or 4 * size
    attention = SelfAttention(
        linear("attn.c_attn", 3 * size, size),
        linear("attn.c_proj", size, size),
        parts.core_attention(shape, layer),
        parts.heads(shape),
    )
    mlp = PlainMLP(linear("mlp.c_fc", inner, size), linear("mlp.c_proj", size, inner), parts.activation(shape))
    norms = (_norm(shape, f"{prefix}.ln_1", policy), _norm(shape, f"{prefix}.ln_2", policy))
    return DecoderLayer(attention, mlp, norms)


def _norm(shape: HFShape, name: str, policy: WeightPolicy) -> LayerNorm:
    return LayerNorm(name, shape.hidden_size, shape.fields.number("layer_norm_epsilon", 1e-5), policy)
