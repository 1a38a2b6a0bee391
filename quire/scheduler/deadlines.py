"""Deadlines: which sequences must end by when, and with which reason. Checked in O(1) when nothing is due."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from quire.core.sequence import Sequence
from quire.core.status import Status

_FEW = 64


class Deadlines:
    """A heap of moments. Sequences that end earlier are swept out before they are half of it."""

    def __init__(self, queue_timeout: float | None) -> None:
        self._queue_timeout = queue_timeout
        self._heap: list[tuple[float, int, Status, Sequence]] = []
        self._sweep_at = _FEW

    def __len__(self) -> int:
        return len(self._heap)

    def watch(self, seq: Sequence) -> None:
        """Remember the moments of a sequence that has just arrived."""
        deadline = seq.request.deadline()
        if deadline is not None:
            heappush(self._heap, (deadline, seq.id, Status.DEADLINE, seq))
        # one that comes from a lost engine has waited its share
        if self._queue_timeout is not None and not seq.request.resume:
            heappush(self._heap, (seq.arrival + self._queue_timeout, seq.id, Status.QUEUE_TIMEOUT, seq))
        if len(self._heap) > self._sweep_at:
            self._sweep()

    def due(self, now: float) -> Iterator[tuple[Sequence, Status]]:
        """Sequences that must end now. A queue time-out concerns only those that never got a row."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            _, _, status, seq = heappop(heap)
            queued_in_vain = seq.first_granted is None
            if not seq.is_finished and (status is Status.DEADLINE or queued_in_vain):
                yield seq, status

    def _sweep(self) -> None:
        """Drop those that have ended: their moment may be years away, and their prompts long."""
        self._heap = [entry for entry in self._heap if not entry[3].is_finished]
        heapify(self._heap)
        self._sweep_at = 2 * len(self._heap) + _FEW
