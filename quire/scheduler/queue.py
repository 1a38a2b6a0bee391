"""WaitingQueue: sequences ordered by a rank that is fixed when they enter. Every operation is O(log n) or better."""

from collections.abc import Iterator
from heapq import heappop, heappush

from quire.core.sequence import Sequence

Rank = tuple[float, ...]


class WaitingQueue:
    """A heap; the smallest rank leaves first, equal ranks in the order in which they entered.

    A sequence that is taken out leaves its heap entry behind, which is skipped when it surfaces: an entry
    counts only while its ticket is the sequence's current one.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[Rank, int, Sequence]] = []
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
        heappush(self._heap, (rank, self._next_ticket, seq))
        self._next_ticket += 1

    def peek(self) -> Sequence | None:
        """The first in line, who stays there."""
        heap = self._heap
        while heap:
            _, ticket, seq = heap[0]
            if self._tickets.get(seq.id) == ticket:
                return seq
            heappop(heap)
        return None

    def remove(self, seq: Sequence) -> None:
        """Take a sequence out, wherever it stands."""
        del self._members[seq.id], self._tickets[seq.id]
