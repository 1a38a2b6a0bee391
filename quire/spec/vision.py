"""VisionSpec: a vision tower and what joins it to a language model: from pixels to embeddings of placeholder tokens."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from quire.spec.layer import LayerSpec
from quire.spec.matrix import MatrixSpec
from quire.spec.mlp import Activation
from quire.spec.norm import NormSpec
from quire.spec.tensor import TensorSpec

AxialOrder = Literal["halves", "columns first", "interleaved"]
"""Which pairs of a head turn by height and which by width: the first half and the second, the second and the first, or
every other one."""


@dataclass(frozen=True, slots=True)
class AxialRopeSpec:
    """Angles by the row and the column of a patch."""

    head_dim: int
    theta: float
    order: AxialOrder = "halves"
    first: int = 0
    """The row and the column that a picture's first patch counts as; a class token turns by nothing."""


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
    joined_by: Literal["side by side", "mean"] = "side by side"
    last: MatrixSpec | None = None
    """A third matrix, behind the activation once more."""


@dataclass(frozen=True, slots=True)
class DeepSpec:
    """A layer of the tower whose vectors the language model is given too."""

    layer: int
    projector: ProjectorSpec


@dataclass(frozen=True, slots=True)
class TilingSpec:
    """Tiles whose embeddings are laid together as one picture, behind those of the whole, without its border."""

    newline: MatrixSpec
    """One row: what stands behind each row of embeddings, and behind a picture without tiles."""
    most_tiles: int | None = None
    """What more tiles come to is made smaller."""


@dataclass(frozen=True, slots=True)
class CropsSpec:
    """Crops whose embeddings are laid together as one picture, with a vector behind each row, and behind them those of
    the whole, which is made of the crops. The vectors go through the projector as patches that are joined do."""

    row_end: MatrixSpec
    """One row."""
    crops_end: MatrixSpec
    """One row: what stands between the crops and the whole."""


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
    """A learned vector for each place of a picture of the usual size, the class token's first …"""
    class_is_last: bool = False
    """… or behind all others. What stands where among the patches makes no difference."""
    spread: Literal["nearest", "blended"] | None = None
    """How those vectors are spread over a picture of any size: each patch has the one nearest to its share, or what the
    four around it come to; None: the picture has the usual size."""
    rope: AxialRopeSpec | None = None
    norm_before: NormSpec | None = None
    norm_after: NormSpec | None = None
    windows: WindowsSpec | None = None
    positions_per_second: float | None = None
    """Where positions have axes: what a second of a video takes on that of time; None: a moment takes one."""
    deep: tuple[DeepSpec, ...] = ()
    """What is added behind the first layers of the language model, one each."""
    seen_whole: int = 0
    """Where tokens of an image see all of it, also what is behind them: how many an image has. One step computes the
    rest of an image or nothing of it. 0: they see what is before them, as text does."""
    tiling: TilingSpec | None = None
    """None: embeddings stand as pictures do …"""
    crops: CropsSpec | None = None
    """… unless it is this that lays them."""

    @property
    def side(self) -> int:
        """Pixels that an embedding has a side."""
        return self.patch_size * self.projector.merge

    @property
    def projectors(self) -> tuple[ProjectorSpec, ...]:
        """The last layer's, and those of layers that are read too."""
        return (self.projector, *(each.projector for each in self.deep))

    def matrices(self) -> Iterator[MatrixSpec]:
        given = [self.patches, self.class_token, self.positions, None if self.tiling is None else self.tiling.newline]
        if self.crops is not None:
            given += (self.crops.row_end, self.crops.crops_end)
        for projector in self.projectors:
            given += (projector.up, projector.down, projector.last)
        yield from (matrix for matrix in given if matrix is not None)
        for layer in self.layers:
            yield from layer.matrices()

    def norms(self) -> Iterator[NormSpec]:
        given = [self.norm_before, self.norm_after]
        for projector in self.projectors:
            given += (projector.patch_norm, projector.norm)
        yield from (norm for norm in given if norm is not None)
        for layer in self.layers:
            yield from layer.norms()

    def tensors(self) -> Iterator[TensorSpec]:
        for matrix in self.matrices():
            yield from matrix.tensors()
        for norm in self.norms():
            yield from norm.tensors()
