"""A scheduling policy for quire: the shortest prompt goes first, and nobody waits for more than so long."""

from quire.core.sequence import Sequence
from quire.scheduler.policies.base import Policy
from quire.scheduler.queue import Rank

QUIRE_PLUGIN_API = 1
TOKENS_PER_SECOND = 200.0
"""What a second of waiting is worth: a prompt of 2000 tokens that came 10 seconds ago goes like one of none."""


class ShortestPrompt(Policy):
    """The rank of a sequence never changes while it waits: a later arrival stands as if its prompt was longer."""

    def rank(self, seq: Sequence) -> Rank:
        return (seq.num_prompt + seq.arrival * TOKENS_PER_SECOND,)
