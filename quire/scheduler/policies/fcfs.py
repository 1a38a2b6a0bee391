"""fcfs: first come, first served. The last to arrive makes way first."""

from quire.core.sequence import Sequence
from quire.scheduler.policies.base import Policy
from quire.scheduler.queue import Rank


class FirstComeFirstServed(Policy):
    """Order of arrival; a preempted sequence keeps its place."""

    def rank(self, seq: Sequence) -> Rank:
        return (seq.arrival,)
