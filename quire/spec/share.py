"""Shares: what one rank of a tensor parallel model takes of a tensor. Plain numbers; `models/loading` cuts by them."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise


@dataclass(frozen=True, slots=True)
class AxisShare:
    """Some of an axis's `whole` places: these ranges of them, one after the other, in the order that quire holds."""

    whole: int
    ranges: tuple[range, ...]

    @property
    def size(self) -> int:
        return sum(map(len, self.ranges))

    def places(self) -> list[int]:
        """Every place that it takes."""
        return [place for taken in self.ranges for place in taken]


@dataclass(frozen=True, slots=True)
class Share:
    """Of a tensor: None takes all of an axis."""

    rows: AxisShare | None = None
    columns: AxisShare | None = None


def even_share(whole: int, rank: int, ranks: int, grain: int = 1) -> range:
    """A rank's part of `whole` places: all ranks have equally many, the first ones one more where that cannot be.

    Parts begin at multiples of `grain`, unless there are too few of these for all ranks.
    """
    if whole <= grain * (ranks - 1):
        grain = 1
    each, more = divmod(-(-whole // grain), ranks)
    start = rank * each + min(rank, more)
    return range(start * grain, min((start + each + (rank < more)) * grain, whole))


def even_runs(sizes: Sequence[int], count: int) -> tuple[range, ...]:
    """Places of these sizes in `count` runs, none of them empty, whose sums are as even as can be: the sum of their
    squares is the least."""
    ends = [0, *accumulate(sizes)]
    # by how many of the first places are in runs: the least sum of squares, and where the last run begins
    best = [(ends[stop] ** 2, 0) for stop in range(len(ends))]
    begins: list[list[int]] = []
    for runs in range(2, count + 1):
        found = [
            min((best[start][0] + (ends[stop] - ends[start]) ** 2, start) for start in range(runs - 1, stop))
            if stop >= runs
            else (0, 0)
            for stop in range(len(ends))
        ]
        begins.append([start for _, start in found])
        best = found
    borders = [len(sizes)]
    for starts in reversed(begins):
        borders.append(starts[borders[-1]])
    return tuple(range(start, stop) for start, stop in pairwise([0, *reversed(borders)]))


def cut_parts(sizes: Sequence[int], taken: Sequence[range]) -> list[AxisShare]:
    """Parts of these sizes lie one after the other: what is taken of each, where `taken` are ranges over them all."""
    ends = list(accumulate(sizes))
    inside: list[list[range]] = [[] for _ in sizes]
    for each in taken:  # many experts have as many parts, of which a range meets one or two
        part = bisect_right(ends, each.start)
        while part < len(sizes) and (first := ends[part] - sizes[part]) < each.stop:
            found = range(max(each.start, first) - first, min(each.stop, ends[part]) - first)
            if found:
                inside[part].append(found)
            part += 1
    return [AxisShare(size, tuple(ranges)) for size, ranges in zip(sizes, inside, strict=True)]
