"""Beam search as far as the scheduler sees it: after every token some beams are forked and others dropped.

Which ones follows from scores that random tokens add to. Nobody reads the tokens, but who shares whose blocks, and for
how long, comes out like in a real search.
"""

from math import log
from random import Random

from quire.core.sequence import Sequence
from quire.core.status import Status
from quire.scheduler.scheduler import Scheduler
from quire.simulation.workload import FIRST_SAMPLED, SimulatedRequest

LIKELIEST = (0.8, 0.99)
"""Chance of the most likely token of what is left: a model is mostly sure of itself. A choice, not a
measurement: with these, beams of 2 to 6 save 35 to 63 % of the blocks."""


class BeamSearch:
    """The beams of one request."""

    def __init__(self, request: SimulatedRequest, first: Sequence) -> None:
        self._width = request.beam_width
        self._random = Random(request.number)
        self._scores: dict[int, float] = {first.id: 0.0}
        self._beams = [first]

    def advance(self, scheduler: Scheduler) -> list[tuple[Sequence, Sequence]]:
        """Keep the best continuations of all beams and drop the others. Returns who was forked into whom."""
        ended = [beam for beam in self._beams if beam.is_finished]
        self._width -= len(ended)
        self._beams = [beam for beam in self._beams if not beam.is_finished]
        # a beam without blocks of its own on the device goes on by itself until it is back
        beams = [beam for beam in self._beams if beam.status in (Status.RUNNING, Status.PAUSED)]
        ready = [beam for beam in beams if not beam.num_pending and beam.num_output]
        if not ready:
            return []
        chosen = self._best(ready, self._width - len(self._beams) + len(ready))
        forked = [(beam, self._fork(scheduler, beam, score)) for beam in ready for score in chosen.get(beam.id, [])[1:]]
        for beam in ready:
            if beam.id in chosen:
                self._scores[beam.id] = chosen[beam.id][0]
            else:
                scheduler.end(beam, Status.ABORTED)
                del self._scores[beam.id]
        self._beams = [beam for beam in self._beams if not beam.is_finished] + [child for _, child in forked]
        return forked

    def _best(self, beams: list[Sequence], count: int) -> dict[int, list[float]]:
        """The `count` best continuations, as scores by beam."""
        offers: list[tuple[float, int]] = []
        for beam in beams:
            left = 1.0
            for _ in range(self._width if len(beams) == 1 else 2):
                chance = left * self._random.uniform(*LIKELIEST)
                left -= chance
                offers.append((self._scores[beam.id] + log(chance), beam.id))
        chosen: dict[int, list[float]] = {}
        for score, beam_id in sorted(offers, reverse=True)[: max(1, count)]:
            chosen.setdefault(beam_id, []).append(score)
        return chosen

    def _fork(self, scheduler: Scheduler, beam: Sequence, score: float) -> Sequence:
        child = scheduler.fork(beam, FIRST_SAMPLED + self._random.randrange(1 << 29))
        self._scores[child.id] = score
        return child
