"""DecodeGraphs: whole decode steps as CUDA graphs, sampling included, so that a step is one launch.

A graph serves one number of rows, so batches are filled up to the next of a short ladder with a spare row that nobody
reads. Graphs are captured when a size is used for the second time: none delays the start, and a size that comes once
costs nothing.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from quire.ops.upload import upload
from quire.sampling.sampler import SampledTokens

DecodeStep = Callable[[Tensor], SampledTokens]
"""One token more for each of these rows, all on the device."""


def ladder(most: int) -> list[int]:
    """Sizes of batches: close together where a row is a large part of the step, never more than a quarter apart."""
    sizes = [1, 2, 4]
    while sizes[-1] < most:
        sizes.append(sizes[-1] + max(4, 1 << max(sizes[-1].bit_length() - 3, 0)))
    return [size for size in sizes if size < most] + [most]


@dataclass(frozen=True, slots=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    rows: Tensor
    sampled: SampledTokens


class DecodeGraphs:
    """Runs decode steps, by graph where there is one."""

    def __init__(self, step: DecodeStep, most_rows: int, spare_row: int, device: torch.device) -> None:
        self._step = step
        self._sizes = ladder(most_rows)
        self._spare_row = spare_row
        self._device = device
        self._pool: Any = None
        """Memory that all graphs share: they never run at once."""
        self._captured: dict[tuple[int, Hashable], _Captured] = {}
        self._seen: set[tuple[int, Hashable]] = set()

    def run(self, rows: Sequence[int], way: Hashable) -> SampledTokens:
        """`way` names how rows sample: steps of one way do the same operations. The result holds until the next one."""
        size = self._sizes[bisect_left(self._sizes, len(rows))]
        padded = [*rows, *[self._spare_row] * (size - len(rows))]
        place = (size, way)
        if place not in self._seen:
            self._seen.add(place)
            return self._step(upload(rows, torch.int64, self._device))
        if place not in self._captured:
            self._captured[place] = self._capture(size)
        captured = self._captured[place]
        captured.rows.copy_(upload(padded, torch.int64, self._device))
        captured.graph.replay()
        found = captured.sampled
        return SampledTokens(found.tokens[: len(rows)], found.invalid[: len(rows)], None)

    def _capture(self, size: int) -> _Captured:
        rows = torch.full((size,), self._spare_row, dtype=torch.int64, device=self._device)
        self._step(rows)  # compiles what is not compiled yet, which may not happen within a capture
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self._device)
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            sampled = self._step(rows)
        self._pool = graph.pool()
        return _Captured(graph, rows, sampled)
