"""Policy: the order of waiting, and who makes way when room runs out. Everything else is the scheduler's."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from quire.core.sequence import Sequence
from quire.scheduler.queue import Rank, WaitingQueue


class Policy(ABC):
    """Owns the waiting queue.

    Safe at any time: every method but those that change the queue. The scheduler pushes a sequence when it
    arrives or loses its row and removes it when it gets one or ends; it calls `charge` once a step when
    `charges` is set.
    """

    preempts = False
    """Whether `outranks` can ever be true: a waiting sequence may take a running one's place."""
    charges = False
    """Whether `charge` wants to know what every step granted."""

    def __init__(self) -> None:
        self._queue = WaitingQueue()

    @abstractmethod
    def rank(self, seq: Sequence) -> Rank:
        """Smaller goes first, and the largest among the running makes way first."""

    def outranks(self, waiting: Sequence, running: Sequence) -> bool:
        """Whether `waiting` may take the place of `running` now. Must not hold both ways round."""
        return False

    def charge(self, sequences: Iterable[Sequence], counts: Iterable[int]) -> None:  # noqa: B027 - optional
        """A step granted these sequences that many tokens."""

    def finished(self, seq: Sequence) -> None:  # noqa: B027 - optional
        """A sequence has ended."""

    def weigh(self, weights: Mapping[str, float]) -> None:  # noqa: B027 - optional
        """Tenants have these shares from now on; those that are not named weigh 1."""

    def victim(self, candidates: Iterable[Sequence]) -> Sequence:
        """Who of these makes way first."""
        return max(candidates, key=self._victim_rank)

    def push(self, seq: Sequence) -> None:
        self._queue.push(seq, self.rank(seq))

    def peek(self, *, readouts: bool = True) -> Sequence | None:
        """Who goes next; without `readouts`, of those that are to answer."""
        return self._queue.peek(readouts=readouts)

    def remove(self, seq: Sequence) -> None:
        self._queue.remove(seq)

    def __len__(self) -> int:
        return len(self._queue)

    def _victim_rank(self, seq: Sequence) -> tuple[Rank, int]:
        return self.rank(seq), seq.id
