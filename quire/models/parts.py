"""Parts that most families build the same way, named as their checkpoints name them."""

import math

from quire.core.errors import CheckpointError
from quire.layers.attention import Attention
from quire.layers.embedding import Embedding
from quire.layers.linear import Linear, Source
from quire.layers.norm import RMSNorm
from quire.layers.rope import Rope, read_rope
from quire.layers.weights import WeightPolicy
from quire.models.decoder import Decoder, DecoderLayer, GatedMLP, SelfAttention
from quire.models.loading.hf_config import HFShape
from quire.ops.functional import Activation

ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}


def attention(
    shape: HFShape,
    layer: int,
    policy: WeightPolicy,
    *,
    qkv_bias: bool = False,
    output_bias: bool = False,
    norm_heads: bool = False,
    norm_offset: float = 0.0,
    scale: float | None = None,
    softcap: float | None = None,
) -> SelfAttention:
    """Attention with separate q, k and v in the checkpoint and one product for them here."""
    policy = policy.of_layer(layer)
    prefix = f"model.layers.{layer}.self_attn"
    size, kv_size = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    sources = [Source(f"{prefix}.{name}_proj", rows) for name, rows in (("q", size), ("k", kv_size), ("v", kv_size))]
    projection = Linear(sources, shape.hidden_size, policy, bias=qkv_bias)
    output = Linear([Source(f"{prefix}.o_proj", shape.hidden_size)], size, policy, bias=output_bias)
    norms = None
    if norm_heads:
        eps = shape.fields.number("rms_norm_eps", 1e-6)
        query, key = (
            RMSNorm(f"{prefix}.{name}_norm", shape.head_dim, eps, policy, offset=norm_offset) for name in "qk"
        )
        norms = (query, key)
    return SelfAttention(projection, output, core_attention(shape, layer, scale, softcap), heads(shape), norms)


def core_attention(shape: HFShape, layer: int, scale: float | None = None, softcap: float | None = None) -> Attention:
    window = shape.windows[layer] if shape.windows else None
    return Attention(layer, scale or 1 / math.sqrt(shape.head_dim), window=window, softcap=softcap)


def heads(shape: HFShape) -> tuple[int, int]:
    """How many heads of keys there are, and their size."""
    return shape.num_kv_heads, shape.head_dim


def gated_mlp(shape: HFShape, layer: int, policy: WeightPolicy, *, bias: bool = False) -> GatedMLP:
    policy = policy.of_layer(layer)
    prefix = f"model.layers.{layer}.mlp"
    size = shape.fields.size("intermediate_size")
    gate_up = Linear(
        [Source(f"{prefix}.{name}_proj", size) for name in ("gate", "up")], shape.hidden_size, policy, bias=bias
    )
    down = Linear([Source(f"{prefix}.down_proj", shape.hidden_size)], size, policy, bias=bias)
    return GatedMLP(gate_up, down, activation(shape))


def activation(shape: HFShape) -> Activation:
    fields = shape.fields
    name = fields.text("hidden_activation", fields.text("hidden_act", fields.text("activation_function", "silu")))
    if name not in ACTIVATIONS:
        raise CheckpointError(f"{fields.source} has the activation {name!r}; quire has {', '.join(ACTIVATIONS)}.")
    return ACTIVATIONS[name]


def rms_norm(shape: HFShape, name: str, policy: WeightPolicy, *, offset: float = 0.0) -> RMSNorm:
    return RMSNorm(name, shape.hidden_size, shape.fields.number("rms_norm_eps", 1e-6), policy, offset=offset)


def embedding(shape: HFShape, policy: WeightPolicy, name: str = "model.embed_tokens") -> Embedding:
    return Embedding(name, shape.vocab_size, shape.hidden_size, policy)


def head(shape: HFShape, policy: WeightPolicy, *, tied: bool) -> Linear | None:
    """The output head; None where it is the embedding."""
    if tied:
        return None
    return Linear([Source("lm_head", shape.vocab_size)], shape.hidden_size, policy)


def layer_norms(shape: HFShape, layer: int, policy: WeightPolicy) -> tuple[RMSNorm, RMSNorm]:
    """Before attention and before the MLP, under the names Llama gave them."""
    policy = policy.of_layer(layer)
    prefix = f"model.layers.{layer}"
    return (
        rms_norm(shape, f"{prefix}.input_layernorm", policy),
        rms_norm(shape, f"{prefix}.post_attention_layernorm", policy),
    )


def sandwich_norms(
    shape: HFShape, layer: int, policy: WeightPolicy
) -> tuple[tuple[RMSNorm, RMSNorm], tuple[RMSNorm, RMSNorm]]:
    """Gemma's four: before attention and MLP, and of what each adds. Their weights are stored around 0."""
    policy = policy.of_layer(layer)
    prefix = f"model.layers.{layer}"

    def norm(name: str) -> RMSNorm:
        return rms_norm(shape, f"{prefix}.{name}_layernorm", policy, offset=1.0)

    return (norm("input"), norm("pre_feedforward")), (norm("post_attention"), norm("post_feedforward"))


def decoder(shape: HFShape, layers: list[DecoderLayer], policy: WeightPolicy) -> Decoder:
    """What stands around the layers of Llama and its relatives: embedding, RMSNorm, head, one set of angles."""
    fields = shape.fields
    return Decoder(
        embedding(shape, policy),
        layers,
        rms_norm(shape, "model.norm", policy),
        head(shape, policy, tied=fields.flag("tie_word_embeddings", False)),
        ropes=[Rope(read_rope(fields.values, shape.head_dim), policy.device)],
    )
