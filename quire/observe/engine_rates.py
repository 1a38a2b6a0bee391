"""EngineRates: how engines' drafts and LoRA adapters did in the last ten seconds, for /stats and the console.

Every front hears the same of the engines, so that these are never added up over fronts. Memory is fixed.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter

from quire.core.stats import EngineStats
from quire.observe.rates import WINDOW

_COUNTED = (
    *("total_drafts", "total_draft_tokens", "total_accepted_tokens"),
    *("total_adapter_hits", "total_adapter_loads"),
)
"""Fields of EngineStats."""
_counts = attrgetter(*_COUNTED)


@dataclass(slots=True)
class _Second:
    """What the counts grew by in one second of the monotonic clock."""

    number: int
    growth: list[int] = field(default_factory=lambda: [0] * len(_COUNTED))


class EngineRates:
    """Of all engines together: a ring of seconds; each makes room when its turn comes again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = clock()
        self._seconds = [_Second(-1) for _ in range(WINDOW)]

    def heard(self, before: EngineStats, after: EngineStats) -> None:
        """The same engine process told `before`, and now `after`."""
        then, now = _counts(before), _counts(after)
        if then == now:
            return
        number = int(self._clock())
        second = self._seconds[number % WINDOW]
        if second.number != number:
            second = self._seconds[number % WINDOW] = _Second(number)
        for place, count in enumerate(now):
            second.growth[place] += count - then[place]

    def snapshot(self) -> dict[str, float | None]:
        """Rates a second; shares are None where nothing was drafted."""
        now = self._clock()
        oldest = int(now) - WINDOW + 1
        # As in Rates: nobody is measured over seconds before the start, nor over a few milliseconds.
        span = max(now - max(float(oldest), self._started), 1.0)
        live = [second.growth for second in self._seconds if second.number >= oldest]
        drafts, tokens, accepted, hits, loads = (sum(column) for column in zip([0] * len(_COUNTED), *live, strict=True))
        return {
            "drafts_per_second": drafts / span,
            "draft_tokens_per_second": tokens / span,
            "accepted_tokens_per_second": accepted / span,
            "accepted_share": accepted / tokens if tokens else None,
            "mean_accepted_length": accepted / drafts if drafts else None,
            "adapter_hits_per_second": hits / span,
            "adapter_loads_per_second": loads / span,
        }
