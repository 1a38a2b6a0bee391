"""Blocks that vision towers are built of: their layers, their patches, and what joins them to a language model."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from quire.core.errors import CheckpointError
from quire.models.families.blocks import ACTIVATIONS
from quire.models.loading.hf_fields import HFFields
from quire.spec.layer import AttentionSpec, LayerSpec
from quire.spec.layout import AS_STORED, FramesApart, Layout, Reshaped
from quire.spec.matrix import MatrixSpec, Part
from quire.spec.mlp import Activation, MlpSpec
from quire.spec.model import ModelSpec
from quire.spec.norm import NormKind, NormSpec

CHANNELS = 3


@dataclass(frozen=True, slots=True)
class VisionFamily:
    """How one kind of model adds images, or sound, to a language model of any family."""

    attach: Callable[[ModelSpec, HFFields], ModelSpec]
    """The language model with its tower; the fields are those of the whole config."""
    text_type: str = ""
    """The type that its language model is described by, where that one's config has a word of its own for it."""
    text_defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By type of the language model: what its config may leave out here."""
    architecture: str = ""
    """What the whole is called, where checkpoints' own name says that it ends at hidden states and it does not."""


def matrix(name: str, rows: int, columns: int, *, bias: bool = True) -> MatrixSpec:
    """Whole on every rank."""
    return MatrixSpec((Part(name, "vision", rows),), columns, "none", bias)


def vision_norm(name: str, size: int, eps: float, kind: NormKind = "layer") -> NormSpec:
    return NormSpec(name, "vision_norm", (size,), eps, kind, bias=kind == "layer")


def patch_matrix(name: str, rows: int, patch_size: int, *, frames: int | None = None, bias: bool) -> MatrixSpec:
    """The kernel of a convolution as a matrix of whole patches; with `frames` it has that axis too."""
    kernel = (rows, CHANNELS, *(() if frames is None else (frames,)), patch_size, patch_size)
    stored = Reshaped(kernel, rows)
    in_gguf: Layout = stored if frames is None else FramesApart(frames, (rows, CHANNELS, patch_size, patch_size))
    part = Part(name, "vision", rows, stored, in_gguf)
    return MatrixSpec((part,), math.prod(kernel[1:]), "none", bias)


def table(name: str, rows: int, size: int, axes: tuple[int, ...] = ()) -> MatrixSpec:
    """Vectors that are looked up; in the file they have `axes` before them, or for a single one none at all."""
    shape = (*axes, size) if rows == 1 else (*axes, rows, size)
    in_gguf: Layout = Reshaped((size,), 1) if rows == 1 else AS_STORED
    return MatrixSpec((Part(name, "vision", rows, Reshaped(shape, rows), in_gguf),), size, "none")


def activation(fields: HFFields, name: str, usual: str) -> Activation:
    given = fields.text(name, usual)
    if given not in ACTIVATIONS:
        raise CheckpointError(f"{fields.source} has the activation {given!r}; quire has {', '.join(ACTIVATIONS)}.")
    return ACTIVATIONS[given]


def plain_mlp(names: tuple[str, str], size: int, inner: int, kind: Activation) -> MlpSpec:
    return MlpSpec(matrix(names[0], inner, size), matrix(names[1], size, inner), kind, gated=False)


def attention(
    qkv: MatrixSpec, out: str, size: int, num_heads: int, *, bias: bool = True, rope: int | None = None
) -> AttentionSpec:
    """Every patch sees its whole picture, or the window that a tower gives it."""
    head_dim = size // num_heads
    return AttentionSpec(
        qkv,
        matrix(out, size, size, bias=bias),
        num_heads,
        num_heads,
        head_dim,
        1 / math.sqrt(head_dim),
        rope=rope,
        causal=False,
    )


def clip_layer(fields: HFFields, prefix: str, layer: int, *, usual: str) -> LayerSpec:
    """A layer of CLIP's and SigLIP's towers."""
    size, inner = fields.size("hidden_size"), fields.size("intermediate_size")
    start, eps = (
        f"{prefix}encoder.layers.{layer}.",
        fields.number("layer_norm_eps", 1e-5 if usual == "quick_gelu" else 1e-6),
    )
    parts = tuple(Part(f"{start}self_attn.{name}_proj", "vision", size) for name in "qkv")
    return LayerSpec(
        attention(
            MatrixSpec(parts, size, "none", True),
            f"{start}self_attn.out_proj",
            size,
            fields.size("num_attention_heads"),
        ),
        plain_mlp((f"{start}mlp.fc1", f"{start}mlp.fc2"), size, inner, activation(fields, "hidden_act", usual)),
        vision_norm(f"{start}layer_norm1", size, eps),
        vision_norm(f"{start}layer_norm2", size, eps),
    )
