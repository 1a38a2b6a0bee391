"""WaitingQueue: sequences ordered by a rank that is fixed when they enter. Every operation is O(log n) or better."""

from collections.abc import Iterator
from heapq import heappop, heappush

from quire.core.sequence import Sequence

Rank = tuple[float, ...]
_Entry = tuple[Rank, int, Sequence]


class WaitingQueue:
    """A heap; the smallest rank leaves first, equal ranks in the order in which they entered.

    A sequence that is taken out leaves its heap entry behind, which is skipped when it surfaces: an entry
    counts only while its ticket is the sequence's current one. Readouts have a heap of their own, so that answers
    can be taken from between them.
    """

    def __init__(self) -> None:
        self._answers: list[_Entry] = []
        self._readouts: list[_Entry] = []
        self._tickets: dict[int, int] = {}
        self._members: dict[int, Sequence] = {}
        self._next_ticket = 0

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._members.values())

    def push(self, seq: Sequence, rank: Rank) -> None:
        assert seq.id not in self._members, f"{seq} queues already"
        self._members[seq.id] = seq
        self._tickets[seq.id] = self._next_ticket
        heap = self._answers if seq.request.pooling is None else self._readouts
        heappush(heap, (rank, self._next_ticket, seq))
        self._next_ticket += 1

    def peek(self, *, readouts: bool = True) -> Sequence | None:
        """The first in line, who stays there; without `readouts`, the first that is to answer."""
        first = self._first(self._answers)
        other = self._first(self._readouts) if readouts else None
        if first is None or (other is not None and other < first):
            first = other
        return None if first is None else first[2]

    def remove(self, seq: Sequence) -> None:
        """Take a sequence out, wherever it stands."""
        del self._members[seq.id], self._tickets[seq.id]

    def _first(self, heap: list[_Entry]) -> _Entry | None:
        while heap:
            _, ticket, seq = heap[0]
            if self._tickets.get(seq.id) == ticket:
                return heap[0]
            heappop(heap)
        return None
