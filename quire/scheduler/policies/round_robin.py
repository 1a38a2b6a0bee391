"""round-robin: sequences take turns of a fixed number of output tokens."""

from quire.core.sequence import Sequence
from quire.scheduler.policies.base import Policy
from quire.scheduler.queue import Rank


class RoundRobin(Policy):
    """Whoever has had fewer turns goes first; after a turn a sequence makes way for any that has had fewer."""

    preempts = True

    def __init__(self, slice_tokens: int) -> None:
        super().__init__()
        self._slice = slice_tokens

    def rank(self, seq: Sequence) -> Rank:
        return (self._turns(seq), seq.arrival)

    def outranks(self, waiting: Sequence, running: Sequence) -> bool:
        return self._turns(waiting) < self._turns(running)

    def _turns(self, seq: Sequence) -> int:
        return (seq.num_tokens - seq.num_prompt) // self._slice
