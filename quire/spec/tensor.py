"""TensorSpec: one tensor that a model takes from a checkpoint, whatever file it lies in."""

from dataclasses import dataclass
from math import prod
from typing import Literal

from quire.spec.layout import AS_STORED, Layout
from quire.spec.share import Share

Ending = Literal["weight", "bias"]
Use = Literal["matrix", "vector"]
"""A matrix may be stored in any weight format; a vector (a norm, a bias) is plain numbers everywhere."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """What it is called, and its shape as quire holds it."""

    name: str
    """Hugging Face's, `.weight` or `.bias` included."""
    shape: tuple[int, ...]
    use: Use
    role: str
    """What it is for: `q`, `down`, `attention_norm` …; the names of GGUF files follow from it."""
    ending: Ending = "weight"
    layer: int | None = None
    layout: Layout = AS_STORED
    """In Hugging Face's files."""
    gguf_layout: Layout = AS_STORED
    kinds: tuple[str, ...] = ()
    """Dtypes that it may be stored in, where it holds some of a quantized weight; empty: what its use allows."""
    optional: bool = False
    """Whether a checkpoint may lack it."""
    share: Share | None = None
    """What `shape` is of the checkpoint's tensor, where a rank takes some of it; None: all."""

    @property
    def num_elements(self) -> int:
        return prod(self.shape)
