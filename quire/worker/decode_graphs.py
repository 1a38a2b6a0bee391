"""DecodeGraphs: whole decode steps as CUDA graphs, sampling included, so that a step is one launch.

A graph serves one number of rows, so batches are filled up to the next of a short ladder with a spare row that nobody
reads. Graphs are captured when a size is used for the second time, or before it is used at all while there is nothing
else to do (`warmup.py`): none delays the start, and a size that comes once costs nothing. There are at most as
many as memory was planned for; one more takes the place of the one that has not been used for longest. Where the host
has to say something before tokens can be drawn, a step is two graphs, and the device computes logits while the host
thinks.
"""

import logging
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from quire.config.memory import MOST_GRAPHS
from quire.ops.upload import upload
from quire.sampling.mode import SamplingMode
from quire.sampling.sampler import SampledTokens
from quire.sampling.verification import VerifiedTokens
from quire.worker.out_of_memory import is_out_of_memory

_log = logging.getLogger(__name__)

Compute = Callable[[Tensor, bool, int, bool], tuple[Tensor, Tensor]]
"""Of these rows, whether many share a prefix, with so many drafts each, and whether any has a LoRA adapter: logits
[rows * (1 + drafts), vocabulary] behind one token more and its drafts, and how long rows are with them. On the
device."""
Drawn = SampledTokens | VerifiedTokens
Draw = Callable[[Tensor, Tensor, Tensor, SamplingMode, int], Drawn]
"""A token for each of these rows, or several where they have so many drafts, by their logits and lengths, in the way
that the mode says."""
Replay = Callable[[], None]
_T = TypeVar("_T")


def ladder(most: int) -> list[int]:
    """Sizes of batches: close together where a row is a large part of the step, never more than a quarter apart."""
    sizes = [1, 2, 4]
    while sizes[-1] < most:
        sizes.append(sizes[-1] + max(4, 1 << max(sizes[-1].bit_length() - 3, 0)))
    return [size for size in sizes if size < most] + [most]


@dataclass(frozen=True, slots=True)
class _Place:
    """What one graph, or pair of graphs, is for."""

    size: int
    mode: SamplingMode
    shared: bool
    in_parts: bool
    drafts: int = 0
    adapted: bool = False


@dataclass(frozen=True, slots=True)
class _Captured:
    rows: Tensor
    parts: tuple[Replay, ...]
    """All of the step, or logits and then tokens."""
    sampled: Drawn
    logits: Tensor | None = None  # [rows and their drafts, vocabulary]
    """What the first of two parts leaves to the second."""


class DecodeGraphs:
    """Runs decode steps, by graph where there is one."""

    def __init__(
        self,
        compute: Compute,
        draw: Draw,
        most_rows: int,
        spare_row: int,
        device: torch.device,
        most_graphs: int = MOST_GRAPHS,
        most_drafts: int = 0,
    ) -> None:
        self._compute = compute
        self._draw = draw
        self.sizes = ladder(most_rows)
        self._spare_row = spare_row
        self._device = device
        self._pool: Any = None
        """Memory that all graphs share: they never run at once."""
        self._logits: Tensor | None = None  # [most rows and their drafts, vocabulary]
        """What the first part of a step leaves to the second, of whatever size: they would be much memory together."""
        self._most_graphs = most_graphs
        self._most_drafts = most_drafts
        self._captured: dict[_Place, _Captured] = {}
        """The last used come last."""
        self._seen: set[_Place] = set()
        self._too_large: set[_Place] = set()
        """Places whose graph did not fit into memory; their steps run without one."""

    def run(
        self,
        rows: Sequence[int],
        mode: SamplingMode,
        before_drawing: Callable[[Tensor], None] | None = None,
        *,
        shared: bool = False,
        drafts: int = 0,
        adapted: bool = False,
    ) -> Drawn:
        """`mode` names how rows sample: steps of one mode do the same operations. The result holds until the next one.

        `before_drawing` is what the host has to do between logits and tokens, and may change the logits it is given;
        `shared` tells whether many rows share a prefix, `drafts` how many each row verifies, and `adapted` whether any
        has an adapter.
        """
        size = self.sizes[bisect_left(self.sizes, len(rows))]
        place = _Place(size, mode, shared, before_drawing is not None, drafts, adapted)
        is_first = place not in self._seen
        self._seen.add(place)
        captured = None if is_first or place in self._too_large else self._graph(place)
        if captured is None:
            return self._at_once(upload(rows, torch.int64, self._device), place, before_drawing)
        padded = [*rows, *[self._spare_row] * (size - len(rows))]
        captured.rows.copy_(upload(padded, torch.int64, self._device))
        captured.parts[0]()
        if before_drawing is not None:
            assert captured.logits is not None, "it is in two parts"
            before_drawing(captured.logits)
            captured.parts[1]()
        return captured.sampled.first(len(rows))

    def warm_up(
        self, size: int, mode: SamplingMode, *, shared: bool = False, drafts: int = 0, adapted: bool = False
    ) -> None:
        """Have a graph for steps of so many rows, one of the ladder's sizes, that sample in this mode.

        None that is there makes room for it.
        """
        place = _Place(size, mode, shared, in_parts=False, drafts=drafts, adapted=adapted)
        self._seen.add(place)
        if len(self._captured) < self._most_graphs:
            self._graph(place)

    def clear(self) -> None:
        """Forget every graph: what they read and write is about to lie elsewhere."""
        torch.cuda.synchronize(self._device)
        self._captured.clear()
        self._too_large.clear()
        self._pool = self._logits = None

    def _at_once(self, rows: Tensor, place: _Place, before_drawing: Callable[[Tensor], None] | None = None) -> Drawn:
        logits, lengths = self._compute(rows, place.shared, place.drafts, place.adapted)
        if before_drawing is not None:
            before_drawing(logits)
        return self._draw(rows, logits, lengths, place.mode, place.drafts)

    def _graph(self, place: _Place) -> _Captured | None:
        captured = self._captured.pop(place, None)
        if captured is None:
            try:
                self._make_room()
                captured = self._capture(place)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                # nothing was computed for a row that someone reads, so the step can still be taken without a graph
                self._too_large.add(place)
                _log.warning("no memory for the graph of %d rows; such steps go without one: %s", place.size, error)
        if captured is not None:
            self._captured[place] = captured
        return captured

    def _make_room(self) -> None:
        """For one more graph. A device that runs the one to go must end with it first."""
        if len(self._captured) >= self._most_graphs:
            torch.cuda.synchronize(self._device)
            self._captured.pop(next(iter(self._captured)))

    def _capture(self, place: _Place) -> _Captured:
        rows = torch.full((place.size,), self._spare_row, dtype=torch.int64, device=self._device)
        self._at_once(rows, place)  # compiles what is not compiled yet, which may not happen within a capture
        if not place.in_parts:
            replay, sampled = self._record(lambda: self._at_once(rows, place))
            return _Captured(rows, (replay,), sampled)
        room = self._room(rows, place)

        def compute() -> Tensor:
            logits, lengths = self._compute(rows, place.shared, place.drafts, place.adapted)
            room.copy_(logits)
            return lengths

        first, lengths = self._record(compute)
        second, sampled = self._record(lambda: self._draw(rows, room, lengths, place.mode, place.drafts))
        return _Captured(rows, (first, second), sampled, room)

    def _room(self, rows: Tensor, place: _Place) -> Tensor:
        if self._logits is None:
            logits, _ = self._compute(rows, place.shared, 0, place.adapted)
            self._logits = logits.new_empty((self.sizes[-1] * (1 + self._most_drafts), logits.shape[1]))
        return self._logits[: place.size * (1 + place.drafts)]

    def _record(self, work: Callable[[], _T]) -> tuple[Replay, _T]:
        """What does the work again, and the result that is written anew each time."""
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self._device)
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            result = work()
        self._pool = graph.pool()
        return graph.replay, result
