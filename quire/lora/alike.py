"""AlikeMatrices: what an adapter has for the same matrix of many layers, which a few operations can fill together.

Every operation takes the interpreter's lock from the steps that go on beside it, and an adapter of a model with 32
layers, matrix by matrix, would be thousands of operations.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from quire.lora.describe import Placed
from quire.spec.lora import FACTORS, PAGE_RANK

_MOST_BYTES = 64 << 20
"""Of the file, that are taken together: as much memory again, or twice that, is used on the way."""


@dataclass(frozen=True, slots=True)
class AlikeMatrices:
    """They differ in their numbers alone, and lie at equal distances in a page."""

    placed: tuple[Placed, ...]

    @property
    def _distance(self) -> int:
        return 0 if len(self.placed) == 1 else self.placed[1].matrix.down_at - self.placed[0].matrix.down_at

    def views(self, pages: Tensor) -> tuple[Tensor, Tensor]:
        """A and B within pages: [pages, matrices, experts, parts, columns, PAGE_RANK] and [pages, matrices, experts,
        PAGE_RANK + FACTORS, rows]."""
        first, count = self.placed[0].matrix, len(self.placed)
        num_pages, elements = pages.shape
        turned = (first.experts, len(first.parts), first.columns, PAGE_RANK)
        as_is = (first.experts, PAGE_RANK + FACTORS, first.rows)
        ahead = (elements, self._distance)
        return (
            pages.as_strided((num_pages, count, *turned), (*ahead, *_strides(turned)), first.down_at),
            pages.as_strided((num_pages, count, *as_is), (*ahead, *_strides(as_is)), first.up_at),
        )


def alike_matrices(placed: Sequence[Placed]) -> Iterator[AlikeMatrices]:
    """All of them, in as few as may be filled together."""
    by_kind: dict[Any, list[Placed]] = {}
    for each in placed:
        by_kind.setdefault(_kind(each), []).append(each)
    for all_alike in by_kind.values():
        run: list[Placed] = []
        for each in sorted(all_alike, key=lambda each: each.matrix.down_at):
            if run and not _continues(run, each):
                yield AlikeMatrices(tuple(run))
                run = []
            run.append(each)
        yield AlikeMatrices(tuple(run))


def _kind(placed: Placed) -> Any:
    matrix = placed.matrix
    parts = tuple((part.rows, part.whole_rows, part.layout, part.share) for part in matrix.parts)
    shape = (parts, matrix.columns, matrix.experts, matrix.column_share, matrix.up_at - matrix.down_at)
    stored = tuple((span.dtype, tuple(span.shape)) for span in (placed.down, placed.up))
    return shape, placed.parts, placed.expert, placed.rank, placed.scale, stored


def _continues(run: Sequence[Placed], following: Placed) -> bool:
    behind = following.matrix.down_at - run[-1].matrix.down_at
    if len(run) > 1 and behind != run[1].matrix.down_at - run[0].matrix.down_at:
        return False
    return (len(run) + 1) * (following.down.num_bytes + following.up.num_bytes) <= _MOST_BYTES


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Of a contiguous tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))
