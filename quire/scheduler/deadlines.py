"""Deadlines: which sequences must end by when, and with which reason. Checked in O(1) when nothing is due."""

from collections.abc import Iterator
from heapq import heappop, heappush

from quire.core.sequence import Sequence
from quire.core.status import Status


class Deadlines:
    """A heap of moments. Sequences that ended earlier are skipped when their moment comes."""

    def __init__(self, queue_timeout: float | None) -> None:
        self._queue_timeout = queue_timeout
        self._heap: list[tuple[float, int, Status, Sequence]] = []

    def watch(self, seq: Sequence) -> None:
        """Remember the moments of a sequence that has just arrived."""
        deadline = seq.request.deadline()
        if deadline is not None:
            heappush(self._heap, (deadline, seq.id, Status.DEADLINE, seq))
        # one that comes from a lost engine has waited its share
        if self._queue_timeout is not None and not seq.request.resume:
            heappush(self._heap, (seq.arrival + self._queue_timeout, seq.id, Status.QUEUE_TIMEOUT, seq))

    def due(self, now: float) -> Iterator[tuple[Sequence, Status]]:
        """Sequences that must end now. A queue time-out concerns only those that never got a row."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            _, _, status, seq = heappop(heap)
            queued_in_vain = seq.first_granted is None
            if not seq.is_finished and (status is Status.DEADLINE or queued_in_vain):
                yield seq, status
