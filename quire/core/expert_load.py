"""ExpertLoad: how often tokens chose each expert of each layer, and what that says of their balance. Torch-free."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from quire.core.stats import LayerBalance

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

HOT_SHARE = 10
"""The hottest experts of a layer are one in so many, and at least one."""


@dataclass(frozen=True, slots=True)
class ExpertLoad:
    """Of one model, since something began."""

    layers: tuple[int, ...]
    """Which layers have experts."""
    counts: "NDArray[np.float64]"
    """[layers, experts]: pairs of a token and an expert that it chose."""

    def shares(self) -> list[list[float]]:
        """By layer and expert: its tokens in those of an average expert; zeros where none came."""
        means = self.counts.mean(axis=1, keepdims=True)
        found: list[list[float]] = (self.counts / (means + (means == 0))).round(3).tolist()
        return found

    def balance(self) -> list[LayerBalance]:
        """Of layers that any token came to."""
        totals = self.counts.sum(axis=1)
        num_experts = self.counts.shape[1]
        ranked = self.counts.copy()
        ranked.sort(axis=1)
        hottest = ranked[:, -max(1, num_experts // HOT_SHARE) :].sum(axis=1)
        largest = ranked[:, -1]
        return [
            LayerBalance(
                layer, float(largest[place] * num_experts / totals[place]), float(hottest[place] / totals[place])
            )
            for place, layer in enumerate(self.layers)
            if totals[place]
        ]


@dataclass(slots=True)
class CacheCounts:
    """Of experts that may be in host memory: how many steps asked for, each once a step and layer."""

    hits: int = 0
    """Those that were on the device."""
    misses: int = 0
    evictions: int = 0
    """Those that made way."""

    def __add__(self, other: "CacheCounts") -> "CacheCounts":
        return CacheCounts(self.hits + other.hits, self.misses + other.misses, self.evictions + other.evictions)


class RecentLoad:
    """The load of the last seconds, from counts that only grow: what is older counts less. It rests while no tokens
    come, so that what was last seen stays to be looked at.
    """

    _KEPT = 0.9
    """Of what is known, each time that there is something new: with one look a second half is 7 seconds old or less."""

    def __init__(self) -> None:
        self._seen: NDArray[np.float64] | None = None
        self.recent: ExpertLoad | None = None
        self.total = 0
        """Choices since the beginning."""

    def look(self, load: ExpertLoad | None) -> bool:
        """`load` since the engine began, None: not known yet. Tells whether it is another than before."""
        if load is None:
            return False
        new = load.counts if self._seen is None else load.counts - self._seen
        if new.shape != load.counts.shape or (new < 0).any():  # the worker was made anew
            new = load.counts
        self._seen = load.counts
        added = int(new.sum())
        if self.recent is None or self.recent.counts.shape != new.shape:
            self.recent = ExpertLoad(load.layers, new)
        elif added:
            self.recent = ExpertLoad(load.layers, self._KEPT * self.recent.counts + new)
        self.total += added
        return added > 0
