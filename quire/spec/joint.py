"""JointSpec: what makes texts and images vectors of one space, in which what belongs together lies close."""

from collections.abc import Iterator
from dataclasses import dataclass

from quire.spec.matrix import MatrixSpec
from quire.spec.norm import NormSpec
from quire.spec.tensor import TensorSpec
from quire.spec.vision import VisionSpec


@dataclass(frozen=True, slots=True)
class AttentionPoolSpec:
    """A learned query that looks at all patches; the tower's projector is the MLP behind it."""

    probe: MatrixSpec
    """One row."""
    qkv: MatrixSpec
    out: MatrixSpec
    norm: NormSpec
    num_heads: int


@dataclass(frozen=True, slots=True)
class JointSpec:
    """Beside the layers that read texts."""

    text: MatrixSpec
    """From a text's hidden state to the space."""
    tower: VisionSpec
    """Of images. Without a `pool` the class token is normed and projected."""
    pool: AttentionPoolSpec | None = None
    filled_with: int | None = None
    """The token that texts are filled up with to the longest there may be; None: they stay as they are."""

    @property
    def size(self) -> int:
        return self.text.rows

    def tensors(self) -> Iterator[TensorSpec]:
        yield from self.text.tensors()
        yield from self.tower.tensors()
        if self.pool is not None:
            for matrix in (self.pool.probe, self.pool.qkv, self.pool.out):
                yield from matrix.tensors()
            yield from self.pool.norm.tensors()
