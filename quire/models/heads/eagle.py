"""EAGLE: a matrix that joins a word with the feature before it, and a layer of Llama's kind. Words and the matrix of
logits are the large model's."""

from collections.abc import Collection

from quire.models.families.blocks import gated_mlp, norm, self_attention, separate_qkv, table
from quire.models.families.dimensions import Dimensions
from quire.models.heads.parts import PICKLED_ANGLES, check_same_size, has
from quire.spec.draft_head import DraftHeadSpec
from quire.spec.layer import LayerSpec
from quire.spec.matrix import MatrixSpec, Part
from quire.spec.model import EmbeddingSpec, ModelSpec
from quire.spec.rope import read_rope


def describe_eagle(dims: Dimensions, names: Collection[str], large: ModelSpec) -> ModelSpec:
    """`names` are those of the checkpoint's tensors: biases and norms that a head may lack are there or not."""
    check_same_size(dims, large)
    fuse = MatrixSpec((Part("fc", "fuse", dims.hidden_size),), 2 * dims.hidden_size, "none", has(names, "fc.bias"))
    return ModelSpec(
        architecture=dims.architecture,
        vocab_size=dims.vocab_size,
        hidden_size=dims.hidden_size,
        max_position=dims.max_position,
        layers=tuple(_layer(dims, number, names) for number in range(dims.num_layers)),
        embedding=EmbeddingSpec(table("embed_tokens", "words", dims.vocab_size, dims.hidden_size)),
        norm=None,
        ropes=(read_rope(dims.fields.values, dims.head_dim),),
        prefix="",
        outer_prefix="model.",
        unused=(PICKLED_ANGLES, r"(model\.)?embed_tokens\.weight", r"lm_head\.weight"),  # copies of the large model's
        draft_head=DraftHeadSpec("eagle", fuse),
    )


def _layer(dims: Dimensions, number: int, names: Collection[str]) -> LayerSpec:
    """The first has no norm before attention: what it reads was joined by a matrix."""
    start = f"layers.{number}."
    bias = has(names, f"{start}self_attn.q_proj.bias")
    qkv = separate_qkv(dims, number, "layers.{}.self_attn.", bias=bias)
    before = f"{start}input_layernorm"
    return LayerSpec(
        self_attention(
            dims, number, qkv, "layers.{}.self_attn.o_proj", bias=has(names, f"{start}self_attn.o_proj.bias")
        ),
        gated_mlp(dims, number, prefix="layers.{}.mlp."),
        attention_norm=norm(dims, before, "attention_norm", number) if has(names, f"{before}.weight") else None,
        mlp_norm=norm(dims, f"{start}post_attention_layernorm", "mlp_norm", number),
    )
