"""NormSpec: a normalisation and where its weights are."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from quire.spec.layout import AS_STORED, Layout
from quire.spec.share import AxisShare, Share
from quire.spec.tensor import Ending, TensorSpec

NormKind = Literal["rms", "layer", "scale"]
"""The last norms nothing: it multiplies by its weight alone."""


@dataclass(frozen=True, slots=True)
class NormSpec:
    """Over the last dimension of `shape`: `x / rms(x) * (weight + offset)`, or the classic one with a mean."""

    name: str
    """Without `.weight` or `.bias`."""
    role: str
    shape: tuple[int, ...]
    """Of the weight: [size]; of norms of heads also [heads, size], each head its own."""
    eps: float
    kind: NormKind = "rms"
    offset: float = 0.0
    """Gemma stores weights around 0 and adds 1."""
    bias: bool = False
    layer: int | None = None
    layout: Layout = AS_STORED
    gguf_layout: Layout = AS_STORED
    learned: bool = True
    """Whether it has a weight; otherwise that is 1, and no tensor holds it."""
    one_a_head: str = ""
    """Name of each head's own tensor, where the rows of `shape` are tensors of their own; `{}` is the head's number."""
    share: AxisShare | None = None
    """Which of the checkpoint's heads, or numbers of a vector over all heads, these are; None: all."""

    def tensors(self) -> Iterator[TensorSpec]:
        if not self.learned:
            return
        layouts = (self.layout, self.gguf_layout)
        if self.one_a_head:
            for head in range(self.shape[0]) if self.share is None else self.share.places():
                name = f"{self.one_a_head.format(head)}.weight"
                yield TensorSpec(name, self.shape[1:], "vector", f"{self.role}.{head}", "weight", self.layer)
            return
        share = None if self.share is None else Share(self.share)
        endings: tuple[Ending, ...] = ("weight", "bias") if self.bias else ("weight",)
        for ending in endings:
            name = f"{self.name}.{ending}"
            yield TensorSpec(name, self.shape, "vector", self.role, ending, self.layer, *layouts, share=share)
