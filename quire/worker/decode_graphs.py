"""DecodeGraphs: whole decode steps as CUDA graphs, sampling included, so that a step is one launch.

A graph serves one number of rows, so batches are filled up to the next of a short ladder with a spare row that nobody
reads. Graphs are captured when a size is used for the second time: none delays the start, and a size that comes once
costs nothing.
"""

import logging
from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from quire.ops.upload import upload
from quire.sampling.sampler import SampledTokens
from quire.worker.out_of_memory import is_out_of_memory

_log = logging.getLogger(__name__)

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
        self._too_large: set[tuple[int, Hashable]] = set()
        """Places whose graph did not fit into memory; their steps run without one."""

    def run(self, rows: Sequence[int], way: Hashable) -> SampledTokens:
        """`way` names how rows sample: steps of one way do the same operations. The result holds until the next one."""
        size = self._sizes[bisect_left(self._sizes, len(rows))]
        padded = [*rows, *[self._spare_row] * (size - len(rows))]
        place = (size, way)
        is_first = place not in self._seen
        self._seen.add(place)
        captured = None if is_first or place in self._too_large else self._graph(place)
        if captured is None:
            return self._step(upload(rows, torch.int64, self._device))
        captured.rows.copy_(upload(padded, torch.int64, self._device))
        captured.graph.replay()
        found = captured.sampled
        return SampledTokens(found.tokens[: len(rows)], found.invalid[: len(rows)], None)

    def _graph(self, place: tuple[int, Hashable]) -> _Captured | None:
        if place not in self._captured:
            try:
                self._captured[place] = self._capture(place[0])
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                # nothing was computed for a row that someone reads, so the step can still be taken without a graph
                self._too_large.add(place)
                _log.warning("no memory for the graph of %d rows; such steps go without one: %s", place[0], error)
        return self._captured.get(place)

    def _capture(self, size: int) -> _Captured:
        rows = torch.full((size,), self._spare_row, dtype=torch.int64, device=self._device)
        self._step(rows)  # compiles what is not compiled yet, which may not happen within a capture
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self._device)
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            sampled = self._step(rows)
        self._pool = graph.pool()
        return _Captured(graph, rows, sampled)
