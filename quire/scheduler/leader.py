"""Leader: a sequence that computes a prefix for which another waits, and how far the two have it in common."""

from bisect import bisect_left
from dataclasses import dataclass

from quire.core.sequence import Sequence
from quire.core.status import Status
from quire.scheduler.step_builder import StepBuilder


@dataclass(frozen=True, slots=True)
class Leader:
    """Whoever follows it is not looked at again until it is done: that costs a step nothing."""

    sequence: Sequence
    until: int
    """Tokens in common, in whole blocks."""
    last_name: bytes
    """Of the last of these blocks."""

    @classmethod
    def of(cls, leader: Sequence, follower: Sequence, block_size: int) -> "Leader":
        """`leader` computes a block of `follower`'s."""
        mine, theirs = follower.block_names, leader.block_names
        # names are chained: where two differ, so do all after them
        common = bisect_left(range(min(len(mine), len(theirs))), True, key=lambda place: mine[place] != theirs[place])
        return cls(leader, common * block_size, mine[common - 1])

    def is_ahead(self, builder: StepBuilder) -> bool:
        """Whether it still computes what is common, also in the step that is being planned."""
        if self.sequence.status is not Status.RUNNING:
            return False
        return self.sequence.num_computed < self.until or self.last_name in builder.computing
