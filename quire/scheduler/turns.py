"""Turns: which sequences decode in a step of a pipeline.

A decode needs the token before, which the last stage samples and the first stage reads when as many steps have begun as
there are stages. Sequences that decode therefore take turns: in every step an even part of them, so that each stage has
a step to compute while the others have theirs.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Series
from operator import attrgetter

from quire.core.sequence import Sequence

_LAST_TURN = attrgetter("turn")


class Turns:
    """Of one scheduler. Steps without rows are none."""

    def __init__(self, stages: int) -> None:
        self._stages = stages
        self._turn = 1
        """The number of the step that is planned."""

    def take(self, running: Iterable[Sequence]) -> list[Sequence]:
        """Whoever may be in the step: all that compute their prompts, and those that decode whose turn it is."""
        taken: list[Sequence] = []
        ready: list[Sequence] = []
        busy = 0
        for seq in running:
            if seq.num_computed < seq.num_prompt or seq.num_tokens - seq.num_computed > 1:
                taken.append(seq)
            elif seq.num_pending and self._turn - seq.turn < self._stages:
                busy += 1
            else:
                ready.append(seq)
        ready.sort(key=_LAST_TURN)
        return taken + ready[: -(-(len(ready) + busy) // self._stages)]

    def note(self, sampling: Series[Sequence]) -> None:
        """The step was planned, with rows, and samples for these."""
        for seq in sampling:
            seq.turn = self._turn
        self._turn += 1
