"""ExpertBalancer: while a model serves, where copies of its experts are to lie, by the load that was measured.

After so many steps it asks for the load, and goes through the layers: one at a time is decided, read by all ranks
beside the steps, and put into the plan of a step, with which all ranks change. So no step waits for more than one
layer, nor does host memory hold more.
"""

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from quire.core.plan import LayerCopies
from quire.core.stats import RankBalance
from quire.executor.other_rank import RankLost
from quire.spec.expert_copies import Copies, balanced_copies, first_copies, rank_loads

_log = logging.getLogger(__name__)
_WORTH = 0.95
"""Other copies come where the busiest rank then has less than so much of what it has now: reading them costs bandwidth
that others may need."""
_SOONER = 10
"""The first look comes after one in so many of the steps between others."""
_WRAP = 1 << 32
"""Where counts begin anew."""

Loads = dict[int, list[int]]
"""By layer: how many tokens have chosen each of its experts, in 32 bits, which wrap around."""


@dataclass(frozen=True, slots=True)
class CopyPlaces:
    """Where copies can lie, and how often they are looked at."""

    ranks: int
    spare: int
    """Places of each rank in a layer."""
    interval: int
    """Steps between two looks."""


class ExpertBalancer:
    """Of one model. It never waits: what is not there yet is there at a later step."""

    def __init__(
        self,
        places: CopyPlaces,
        loads: Callable[[], "Future[Loads]"],
        fetch: Callable[[LayerCopies], "Future[None]"],
    ) -> None:
        """`loads` asks for what was counted since the start; `fetch` has all ranks read what is new to them."""
        self._places = places
        self._ask_loads = loads
        self._fetch = fetch
        # what lies in places at first knows nothing of the load: the first look comes sooner
        self._steps = places.interval - max(1, places.interval // _SOONER)
        """Since the last look."""
        self._seen: Loads = {}
        self._copies: dict[int, Copies] = {}
        """By layer, as all ranks have them."""
        self._asked: Future[Loads] | None = None
        self._undecided: deque[tuple[int, list[int]]] = deque()
        """Layers with the load since the look before."""
        self._fetching: tuple[LayerCopies, Future[None]] | None = None
        self._copies_moved = 0
        self._imbalances: tuple[float, float] | None = None
        """As of the last look: with copies, and what it would have been without."""

    @property
    def balance(self) -> RankBalance | None:
        """As of the last look; None: there was none, or nothing to see."""
        return None if self._imbalances is None else RankBalance(*self._imbalances, self._copies_moved)

    def before_step(self) -> list[LayerCopies]:
        """What the plan of the step that comes is to say."""
        ready: list[LayerCopies] = []
        if self._fetching is not None:
            if not self._fetching[1].done():
                return []
            ready = self._fetched(*self._fetching)
            self._fetching = None
        if self._undecided:
            self._decide(*self._undecided.popleft())
        elif self._asked is not None:
            if self._asked.done():
                self._look(self._asked.result())
                self._asked = None
        else:
            self._steps += 1
            if self._steps >= self._places.interval:
                self._steps = 0
                self._asked = self._ask_loads()
        return ready

    def _look(self, loads: Loads) -> None:
        """Note the load since the last look, and how it lay on ranks."""
        zeros = {layer: [0] * len(row) for layer, row in loads.items()}
        last, self._seen = self._seen or zeros, loads
        new = {
            layer: [(now - before) % _WRAP for now, before in zip(row, last[layer], strict=True)]
            for layer, row in sorted(loads.items())
        }
        none: Copies = ((),) * self._places.ranks
        peaks, peaks_without, means = 0.0, 0.0, 0.0
        for layer, load in new.items():
            peaks += max(rank_loads(load, self._copies_of(layer, len(load))))
            peaks_without += max(rank_loads(load, none))
            means += sum(load) / self._places.ranks
        if not means:
            return
        self._imbalances = (peaks / means, peaks_without / means)
        told = "experts: the busiest rank had %.2f times an average one's tokens, and without copies %.2f times"
        _log.info(told, *self._imbalances)
        self._undecided.extend(new.items())

    def _decide(self, layer: int, load: list[int]) -> None:
        now = self._copies_of(layer, len(load))
        copies = balanced_copies(load, self._places.ranks, self._places.spare)
        if max(rank_loads(load, copies)) < _WORTH * max(rank_loads(load, now)):
            asked = LayerCopies(layer, copies)
            self._fetching = (asked, self._fetch(asked))

    def _fetched(self, asked: LayerCopies, done: "Future[None]") -> list[LayerCopies]:
        """What was asked for, unless a rank could not read it: then all goes on as it is."""
        error = done.exception()
        if error is None:
            before, self._copies[asked.layer] = self._copies[asked.layer], asked.copies
            self._copies_moved += sum(len({*after} - {*had}) for after, had in zip(asked.copies, before, strict=True))
            return [asked]
        if isinstance(error, RankLost):
            raise error
        _log.warning("copies of experts of layer %d stay as they are: %s", asked.layer, error)
        self._undecided.clear()
        return []

    def _copies_of(self, layer: int, num_experts: int) -> Copies:
        if layer not in self._copies:
            self._copies[layer] = first_copies(num_experts, self._places.ranks, self._places.spare)
        return self._copies[layer]
