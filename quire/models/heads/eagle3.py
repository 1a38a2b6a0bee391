"""EAGLE-3: features are made of what three layers of the large model read; a layer whose attention reads word and
feature side by side; and a matrix of logits of its own, often for the most usual tokens alone."""

from collections.abc import Collection
from dataclasses import replace

from quire.core.errors import CheckpointError
from quire.models.families.blocks import gated_mlp, norm, self_attention, separate_qkv, table
from quire.models.families.dimensions import Dimensions
from quire.models.heads.parts import PICKLED_ANGLES, check_same_vocabulary, has
from quire.spec.draft_head import DraftHeadSpec
from quire.spec.layer import LayerSpec
from quire.spec.matrix import MatrixSpec, Part
from quire.spec.model import EmbeddingSpec, ModelSpec
from quire.spec.rope import read_rope
from quire.spec.tensor import TensorSpec

_LAYERS = "eagle_aux_hidden_state_layer_ids"
_MAP = "d2t"


def describe_eagle3(dims: Dimensions, names: Collection[str], large: ModelSpec) -> ModelSpec:
    check_same_vocabulary(dims, large)
    if dims.num_layers != 1:
        raise CheckpointError(f"{dims.source} describes a head of {dims.num_layers} layers; EAGLE-3 has one.")
    taps, hidden = _taps(dims, large), dims.hidden_size
    said = dims.fields.size_or_none("draft_vocab_size") or dims.vocab_size
    owns_words, owns_head = has(names, "embed_tokens.weight"), has(names, "lm_head.weight")
    if (not owns_words or not owns_head) and hidden != large.hidden_size:
        lacking = "embed_tokens" if not owns_words else "lm_head"
        raise CheckpointError(
            f"{dims.source} describes a head of hidden size {hidden} without {lacking}.weight, and that of "
            f"{large.architecture} is of {large.hidden_size}; the head was made for another model."
        )
    if said != dims.vocab_size and not (owns_head and has(names, _MAP)):
        lacking = _MAP if owns_head else "lm_head.weight"
        raise CheckpointError(
            f"{dims.source} gives draft_vocab_size {said:,} of {dims.vocab_size:,} tokens, and its files lack "
            f"{lacking}; the download may be incomplete."
        )
    head = MatrixSpec((Part("lm_head", "head", said),), hidden, "rows") if owns_head else None
    token_map = TensorSpec(_MAP, (said,), "vector", _MAP, kinds=("int64", "int32")) if has(names, _MAP) else None
    return ModelSpec(
        architecture=dims.architecture,
        vocab_size=dims.vocab_size,
        hidden_size=hidden,
        max_position=dims.max_position,
        layers=(_layer(dims, names),),
        embedding=EmbeddingSpec(table("embed_tokens", "words", dims.vocab_size, hidden)),
        norm=norm(dims, "norm", "output_norm"),
        head=head,
        ropes=(read_rope(dims.fields.values, dims.head_dim),),
        prefix="",
        outer_prefix="model.",
        moved=(("layers.0.", "midlayer."),),
        unused=(PICKLED_ANGLES, "t2d"),  # the same as d2t, the other way round
        draft_head=DraftHeadSpec(
            "eagle3",
            MatrixSpec((Part("fc", "fuse", hidden),), len(taps) * large.hidden_size, "none", has(names, "fc.bias")),
            word_norm=norm(dims, "midlayer.input_layernorm", "attention_norm"),
            feature_norm=norm(dims, "midlayer.hidden_norm", "feature_norm"),
            taps=taps,
            owns_words=owns_words,
            token_map=token_map,
        ),
    )


def _taps(dims: Dimensions, large: ModelSpec) -> tuple[int, ...]:
    """Layers whose inputs make features: a low one, one in the middle and a high one, or what the config names."""
    fields, count = dims.fields, large.num_layers
    given = fields.values.get(_LAYERS) or fields.nested("eagle_config").values.get(_LAYERS)
    if given is None:
        if count < 6:
            raise CheckpointError(
                f"{large.architecture} has {count} layers, and {dims.source} does not say which of them its features "
                f"are made of; give {_LAYERS}."
            )
        return 2, count // 2, count - 3
    whole = isinstance(given, list) and given and all(type(one) is int and 0 < one < count for one in given)
    if not whole:
        raise CheckpointError(
            f"{dims.source} gives {_LAYERS} {given!r}; it must be a list of layers of {large.architecture}, each "
            f"1 to {count - 1}."
        )
    return tuple(given)


def _layer(dims: Dimensions, names: Collection[str]) -> LayerSpec:
    bias = has(names, "midlayer.self_attn.q_proj.bias")
    qkv = separate_qkv(dims, 0, "midlayer.self_attn.", bias=bias)
    out_bias = has(names, "midlayer.self_attn.o_proj.bias")
    return LayerSpec(
        self_attention(dims, 0, replace(qkv, columns=2 * dims.hidden_size), "midlayer.self_attn.o_proj", bias=out_bias),
        gated_mlp(dims, 0, prefix="midlayer.mlp."),
        mlp_norm=norm(dims, "midlayer.post_attention_layernorm", "mlp_norm"),
    )
