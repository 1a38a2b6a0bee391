"""Blocks that most families are built of, under the names that Llama gave them unless a family has its own."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypedDict, Unpack

from quire.core.errors import CheckpointError
from quire.core.pooling import Pooling
from quire.models.families.dimensions import Dimensions
from quire.spec.layer import AttentionSpec, HeadNormsSpec, LayerSpec
from quire.spec.layout import AS_STORED, MINUS_ONE, Layout, PairedRows
from quire.spec.matrix import MatrixSpec, Part
from quire.spec.mlp import Activation, MlpSpec
from quire.spec.model import ClassifierSpec, EmbeddingSpec, ModelSpec
from quire.spec.norm import NormKind, NormSpec
from quire.spec.rope import RopeSpec, read_rope
from quire.spec.tensor import TensorSpec

ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
}
_EPSILONS = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps", "norm_epsilon")
_CLASSIFIER = "ForSequenceClassification"
_INV_FREQ = r".*rotary_emb\.inv_freq"
"""Angles that old checkpoints hold beside their weights."""


# --- matrices --------------------------------------------------------------------------------------------------------


def heads_layout(dims: Dimensions, num_heads: int) -> PairedRows:
    """Heads whose rows are pairs that turn together."""
    return PairedRows(num_heads, dims.head_dim, dims.head_dim)


def separate_qkv(
    dims: Dimensions,
    layer: int,
    prefix: str = "model.layers.{}.self_attn.",
    names: tuple[str, str, str] = ("q_proj", "k_proj", "v_proj"),
    *,
    bias: bool = False,
    paired: bool = False,
    gguf_paired: bool = False,
) -> MatrixSpec:
    """Three tensors in the checkpoint, one matrix here. `paired`: rotary positions turn neighbouring rows."""
    start = prefix.format(layer)

    def part(name: str, role: str, heads: int) -> Part:
        pairs: Layout = heads_layout(dims, heads) if role != "v" else AS_STORED
        layouts = (pairs if paired else AS_STORED, pairs if paired or gguf_paired else AS_STORED)
        return Part(start + name, role, heads * dims.head_dim, *layouts)

    counts = (dims.num_heads, dims.num_kv_heads, dims.num_kv_heads)
    parts = tuple(part(*given) for given in zip(names, ("q", "k", "v"), counts, strict=True))
    return MatrixSpec(parts, dims.hidden_size, "rows", bias, layer)


def fused_qkv(dims: Dimensions, layer: int, name: str, *, bias: bool = False, layout: Layout = AS_STORED) -> MatrixSpec:
    """One tensor in the checkpoint; converters to GGUF put its rows into quire's order."""
    rows = (dims.num_heads + 2 * dims.num_kv_heads) * dims.head_dim
    return MatrixSpec((Part(name.format(layer), "qkv", rows, layout),), dims.hidden_size, "rows", bias, layer)


def projection(
    dims: Dimensions,
    layer: int,
    name: str,
    role: str,
    columns: int,
    *,
    bias: bool = False,
    layout: Layout = AS_STORED,
) -> MatrixSpec:
    """Back to the model's width: what attention and MLP end with."""
    return MatrixSpec((Part(name.format(layer), role, dims.hidden_size, layout),), columns, "columns", bias, layer)


class AttentionOptions(TypedDict, total=False):
    """What a family may say of its attention beside its matrices."""

    head_norms: HeadNormsSpec | None
    scale: float
    softcap: float | None
    rope: int | None
    window: int | None
    chunk: int | None
    sinks: TensorSpec | None
    has_temperature: bool
    causal: bool


def self_attention(
    dims: Dimensions,
    layer: int,
    qkv: MatrixSpec,
    out: str,
    *,
    bias: bool = False,
    layout: Layout = AS_STORED,
    **options: Unpack[AttentionOptions],
) -> AttentionSpec:
    """`out` is what the matrix is called that it ends with; that one's are `bias` and `layout`."""
    if dims.fields.has("kv_lora_rank"):
        raise CheckpointError(
            f"{dims.source} describes {dims.architecture} with latent attention (MLA), which quire runs of DeepSeek V2 "
            "and V3, and by its own modules alone (--model-impl quire)."
        )
    projected = projection(dims, layer, out, "out", dims.num_heads * dims.head_dim, bias=bias, layout=layout)
    heads = (dims.num_heads, dims.num_kv_heads, dims.head_dim)
    usual = AttentionSpec(qkv, projected, *heads, 1 / math.sqrt(dims.head_dim), _window(dims, layer), rope=0)
    return replace(usual, **options)


def _window(dims: Dimensions, layer: int) -> int | None:
    """A layer behind the last looks at everything."""
    return dims.windows[layer] if layer < dims.num_layers else None


def attention(
    dims: Dimensions,
    layer: int,
    *,
    qkv_bias: bool | None = None,
    out_bias: bool | None = None,
    paired: bool = False,
    gguf_paired: bool = False,
    **options: Unpack[AttentionOptions],
) -> AttentionSpec:
    """Llama's: it has biases where the family, or else the config's `attention_bias`, says so.

    `paired`: rows that turn together are neighbours; `gguf_paired`: converters to GGUF make them so.
    """
    usual = dims.fields.flag("attention_bias", False)
    qkv_bias, out_bias = usual if qkv_bias is None else qkv_bias, usual if out_bias is None else out_bias
    qkv = separate_qkv(dims, layer, bias=qkv_bias, paired=paired, gguf_paired=gguf_paired)
    return self_attention(dims, layer, qkv, "model.layers.{}.self_attn.o_proj", bias=out_bias, **options)


def head_norms(dims: Dimensions, layer: int, *, offset: float = 0.0) -> HeadNormsSpec:
    """One weight for all heads, as Qwen3 and Gemma 3 have them."""
    query, key = (
        norm(dims, f"model.layers.{{}}.self_attn.{role}", role, layer, size=dims.head_dim, offset=offset)
        for role in ("q_norm", "k_norm")
    )
    return HeadNormsSpec(query, key)


def gated_mlp(
    dims: Dimensions,
    layer: int,
    names: tuple[str, ...] = ("gate_proj", "up_proj", "down_proj"),
    *,
    prefix: str = "model.layers.{}.mlp.",
    bias: bool = False,
    usual: str = "silu",
    size: int | None = None,
    role: str = "",
) -> MlpSpec:
    """Gate and up are two tensors in the checkpoint or, where `names` has two, one; they are one matrix here.

    `size` is the config's where it is not given; roles begin with `role`.
    """
    *above, down = [prefix.format(layer) + name for name in names]
    size = size or dims.fields.size("intermediate_size", "n_inner")
    roles = [role + each for each in (("gate", "up") if len(above) == 2 else ("gate_up",))]
    parts = tuple(Part(name, each, 2 * size // len(above)) for name, each in zip(above, roles, strict=True))
    up = MatrixSpec(parts, dims.hidden_size, "rows", bias, layer)
    below = projection(dims, layer, down, f"{role}down", size, bias=bias)
    return MlpSpec(up, below, activation(dims, usual), gated=True)


def plain_mlp(
    dims: Dimensions,
    layer: int,
    names: tuple[str, str],
    size: int,
    *,
    bias: bool = True,
    usual: str = "gelu",
    layout: Layout = AS_STORED,
) -> MlpSpec:
    """Without a gate."""
    part = Part(names[0].format(layer), "up", size, layout)
    up = MatrixSpec((part,), dims.hidden_size, "rows", bias, layer)
    down = projection(dims, layer, names[1], "down", size, bias=bias, layout=layout)
    return MlpSpec(up, down, activation(dims, usual), gated=False)


def activation(dims: Dimensions, usual: str = "silu") -> Activation:
    fields = dims.fields
    names = ("hidden_activation", "hidden_act", "activation_function", "activation")
    name = next((fields.text(field, "") for field in names if fields.has(field)), usual)
    if name not in ACTIVATIONS:
        raise CheckpointError(f"{fields.source} has the activation {name!r}; quire has {', '.join(ACTIVATIONS)}.")
    return ACTIVATIONS[name]


def turned_layers(dims: Dimensions) -> list[bool]:
    """Whether each layer turns its heads; the config's list has 1 where it does, whatever its name says."""
    given = dims.fields.values.get("no_rope_layers")
    if given is None:
        every = dims.fields.size_or_none("no_rope_layer_interval") or 4
        return [(layer + 1) % every != 0 for layer in range(dims.num_layers)]
    if not isinstance(given, list) or len(given) != dims.num_layers or not all(one in (0, 1) for one in given):
        raise CheckpointError(
            f"{dims.source} must give no_rope_layers as a list of {dims.num_layers} numbers, each 0 or 1."
        )
    return [bool(one) for one in given]


# --- norms -----------------------------------------------------------------------------------------------------------


def norm(
    dims: Dimensions,
    name: str,
    role: str,
    layer: int | None = None,
    *,
    size: int | None = None,
    kind: NormKind = "rms",
    offset: float = 0.0,
    bias: bool = False,
    learned: bool = True,
) -> NormSpec:
    """With the config's epsilon. GGUF holds norms with an offset as they are multiplied by."""
    return NormSpec(
        name.format(layer),
        role,
        (size or dims.hidden_size,),
        _epsilon(dims),
        kind,
        offset,
        bias,
        layer,
        gguf_layout=MINUS_ONE if offset else AS_STORED,
        learned=learned,
    )


def layer_norm(dims: Dimensions, name: str, role: str, layer: int | None = None, *, bias: bool = True) -> NormSpec:
    """The classic one."""
    return norm(dims, name, role, layer, kind="layer", bias=bias)


def _epsilon(dims: Dimensions) -> float:
    given = (dims.fields.number_or_none(name) for name in _EPSILONS)
    return next((eps for eps in given if eps is not None), 1e-6)


class Norms(TypedDict, total=False):
    """Norms of a layer, as LayerSpec takes them."""

    attention_norm: NormSpec
    mlp_norm: NormSpec
    added_attention_norm: NormSpec
    added_mlp_norm: NormSpec


def pre_norms(dims: Dimensions, layer: int) -> Norms:
    """Before attention and before the MLP, under the names Llama gave them."""
    return {
        "attention_norm": norm(dims, "model.layers.{}.input_layernorm", "attention_norm", layer),
        "mlp_norm": norm(dims, "model.layers.{}.post_attention_layernorm", "mlp_norm", layer),
    }


def sandwich_norms(dims: Dimensions, layer: int) -> Norms:
    """Gemma's four: before attention and MLP, and of what each adds. Their weights are stored around 0."""

    def one(name: str, role: str) -> NormSpec:
        return norm(dims, f"model.layers.{{}}.{name}_layernorm", role, layer, offset=1.0)

    return {
        "attention_norm": one("input", "attention_norm"),
        "mlp_norm": one("pre_feedforward", "mlp_norm"),
        "added_attention_norm": one("post_attention", "added_attention_norm"),
        "added_mlp_norm": one("post_feedforward", "added_mlp_norm"),
    }


# --- around the layers -----------------------------------------------------------------------------------------------


def table(name: str, role: str, rows: int, columns: int) -> MatrixSpec:
    """A matrix whose rows are looked up."""
    return MatrixSpec((Part(name, role, rows),), columns, "rows")


def model(dims: Dimensions, layer: Callable[[int], LayerSpec], **given: Any) -> ModelSpec:
    """What all models have, and what is `given` of a ModelSpec's other fields."""
    return ModelSpec(
        architecture=dims.architecture,
        vocab_size=dims.vocab_size,
        hidden_size=dims.hidden_size,
        max_position=dims.max_position,
        max_position_source=dims.max_position_source,
        layers=tuple(map(layer, range(dims.num_layers))),
        **given,
    )


def decoder(
    dims: Dimensions,
    layer: Callable[[int], LayerSpec],
    *,
    embedding: EmbeddingSpec | None = None,
    head_name: str = "lm_head",
    head_bias: bool = False,
    ropes: tuple[RopeSpec, ...] | None = None,
    unused: tuple[str, ...] = (),
    **given: Any,
) -> ModelSpec:
    """What stands around the layers of Llama and its relatives: embedding, a last norm, head, one set of angles."""
    embedding = embedding or words(dims, "model.embed_tokens")
    width = embedding.words.columns
    score = classifier(dims, "score", "last", width=width, role="score", bias=False)
    has_head = score is None and not _ends_at_hidden_states(dims.architecture)
    tied = dims.fields.flag("tie_word_embeddings", False)
    parts = (Part(head_name, "head", dims.vocab_size),)
    head = MatrixSpec(parts, width, "rows", head_bias) if has_head and not tied else None
    return model(
        dims,
        layer,
        embedding=embedding,
        head=head,
        tied=has_head and tied,
        ropes=(read_rope(dims.fields.values, dims.head_dim),) if ropes is None else ropes,
        classifier=score,
        unused=(_INV_FREQ, *(() if head else (rf"{head_name}\.(weight|bias)",)), *unused),
        **{"norm": norm(dims, "model.norm", "output_norm"), **given},
    )


class Mtp(TypedDict):
    """What a ModelSpec says of layers behind its last."""

    mtp_layer: LayerSpec | None
    unused: tuple[str, ...]


def mtp(dims: Dimensions, layer: Callable[[int], LayerSpec]) -> Mtp:
    """Layers behind the last draft tokens (multi-token prediction). No answer needs them; the first can draft."""
    count = dims.fields.size_or_none("num_nextn_predict_layers", "num_mtp_layers", least=0) or 0
    if not count:
        return {"mtp_layer": None, "unused": ()}
    numbers = "|".join(str(dims.num_layers + number) for number in range(count))
    return {"mtp_layer": layer(dims.num_layers), "unused": (rf"model\.layers\.({numbers})\..*",)}


def _ends_at_hidden_states(architecture: str) -> bool:
    """Whether a class of transformers has no head: LlamaModel, but not GPT2LMHeadModel."""
    return architecture.endswith("Model") and not architecture.endswith("LMHeadModel")


def words(dims: Dimensions, name: str, *, scale: float | None = None) -> EmbeddingSpec:
    """An embedding of words alone."""
    return EmbeddingSpec(table(name, "words", dims.vocab_size, dims.hidden_size), scale=scale)


def classifier(
    dims: Dimensions,
    out: str,
    pooling: Pooling,
    *,
    width: int | None = None,
    role: str = "classifier",
    bias: bool = True,
    **given: Any,
) -> ClassifierSpec | None:
    """How a model classifies, if it does: by one hidden state of `width` times the matrix called `out`."""
    if not dims.architecture.endswith(_CLASSIFIER):
        return None
    labels, kind = _labels(dims), dims.fields.text("problem_type", "")
    matrix = MatrixSpec((Part(out, role, len(labels)),), width or dims.hidden_size, "none", bias)
    several, regression = kind == "multi_label_classification", kind == "regression"
    return ClassifierSpec(labels, pooling, matrix, multi_label=several, regression=regression, **given)


def square(dims: Dimensions, name: str, role: str, *, bias: bool = True) -> MatrixSpec:
    """What classifiers of encoders put before their last matrix."""
    return MatrixSpec((Part(name, role, dims.hidden_size),), dims.hidden_size, "none", bias)


def _labels(dims: Dimensions) -> tuple[str, ...]:
    """Names of a classifier's labels, in the order of its outputs."""
    names = dims.fields.values.get("id2label")
    if isinstance(names, dict) and names and all(str(key).isdecimal() for key in names):
        return tuple(str(names[key]) for key in sorted(names, key=int))
    return tuple(f"LABEL_{number}" for number in range(dims.fields.size_or_none("num_labels") or 2))
