"""priority: smaller numbers first, preempting, with ageing so that nothing starves."""

from quire.core.sequence import Sequence
from quire.scheduler.policies.base import Policy
from quire.scheduler.queue import Rank


class Priority(Policy):
    """Every `ageing` seconds of waiting are worth one level.

    All sequences age alike, so (level × ageing + arrival) orders them the same way at any time and ranks never
    change while they queue. Only a better level preempts: age alone moves a sequence forward in the queue.
    """

    preempts = True

    def __init__(self, ageing: float) -> None:
        super().__init__()
        self._ageing = ageing

    def rank(self, seq: Sequence) -> Rank:
        return (seq.request.params.priority * self._ageing + seq.arrival, seq.arrival)

    def outranks(self, waiting: Sequence, running: Sequence) -> bool:
        better_level = waiting.request.params.priority < running.request.params.priority
        return better_level and self.rank(waiting) < self.rank(running)
