"""VisionSpec: a vision tower and what joins it to a language model: from pixels to embeddings of placeholder tokens."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from quire.spec.layer import LayerSpec
from quire.spec.matrix import MatrixSpec
from quire.spec.mlp import Activation
from quire.spec.norm import NormSpec
from quire.spec.tensor import TensorSpec

AxialOrder = Literal["halves", "interleaved"]
"""Which pairs of a head turn by height and which by width: the first half and the second, or every other one."""


@dataclass(frozen=True, slots=True)
class AxialRopeSpec:
    """Angles by the row and the column of a patch."""

    head_dim: int
    theta: float
    order: AxialOrder = "halves"


@dataclass(frozen=True, slots=True)
class WindowsSpec:
    """Layers that see only a square of patches, and those that see the whole picture."""

    size: int
    """Pixels of a side."""
    whole: frozenset[int]
    """Layers that see everything."""


@dataclass(frozen=True, slots=True)
class ProjectorSpec:
    """From the tower's vectors to the language model's: neighbours joined, normed, and two matrices or one."""

    up: MatrixSpec
    down: MatrixSpec | None
    activation: Activation
    merge: int = 1
    """A square of so many patches a side becomes one vector."""
    patch_norm: NormSpec | None = None
    """Of patches, before they are joined."""
    norm: NormSpec | None = None
    """Of what they are joined to."""


@dataclass(frozen=True, slots=True)
class VisionSpec:
    """Patches in, embeddings out."""

    patch_size: int
    patches: MatrixSpec
    """What a patch is multiplied by; its columns are channels, frames, rows and columns of pixels."""
    layers: tuple[LayerSpec, ...]
    projector: ProjectorSpec
    frames: int = 1
    """Frames of a patch, which are one moment of a video; an image is as many equal ones."""
    class_token: MatrixSpec | None = None
    """One row, before the patches of every picture; no embedding is made of it."""
    positions: MatrixSpec | None = None
    """A learned vector for each place of a picture of the usual size, the class token's first."""
    shared_positions: bool = False
    """Whether those vectors are spread over a picture of any size, each patch having the one nearest to its share."""
    rope: AxialRopeSpec | None = None
    norm_before: NormSpec | None = None
    norm_after: NormSpec | None = None
    windows: WindowsSpec | None = None
    positions_per_second: float | None = None
    """Where positions have axes: what a second of a video takes on that of time; None: a moment takes one."""

    @property
    def side(self) -> int:
        """Pixels that an embedding has a side."""
        return self.patch_size * self.projector.merge

    def matrices(self) -> Iterator[MatrixSpec]:
        given = (self.patches, self.class_token, self.positions, self.projector.up, self.projector.down)
        yield from (matrix for matrix in given if matrix is not None)
        for layer in self.layers:
            yield from layer.matrices()

    def norms(self) -> Iterator[NormSpec]:
        given = (self.norm_before, self.norm_after, self.projector.patch_norm, self.projector.norm)
        yield from (norm for norm in given if norm is not None)
        for layer in self.layers:
            yield from layer.norms()

    def tensors(self) -> Iterator[TensorSpec]:
        for matrix in self.matrices():
            yield from matrix.tensors()
        for norm in self.norms():
            yield from norm.tensors()
