"""Which attention rank gets a request: the one that is done with its prompt first, as far as plain numbers tell."""

from collections.abc import Sequence as Seq

from quire.core.request import Request
from quire.core.sequence import Sequence
from quire.scheduler.scheduler import Scheduler

SEQUENCE_TOKENS = 128
"""Prompt tokens that a live sequence counts as. A prefix that many requests share draws them to the rank that has it,
until that one has so many more than another that computing the prefix there as well is the better bargain."""
_PROBE = -1
"""The number of a sequence that never lives."""


def choose_rank(request: Request, schedulers: Seq[Scheduler]) -> int:
    """By the prompt tokens that a rank would have to compute and the sequences that it has; the first of equals."""
    probe = Sequence(_PROBE, request, 0, len(request.prompt.tokens) + 1, ())  # its blocks are named once for all ranks
    costs = [
        SEQUENCE_TOKENS * (len(each.running) + each.num_waiting + each.num_held) - each.kv.find(probe)[1].num_tokens
        for each in schedulers
    ]
    return costs.index(min(costs))
