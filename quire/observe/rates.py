"""Rates: what happened in the last ten seconds, for /stats and the console. Memory is fixed, whatever the traffic."""

import time
from collections.abc import Callable
from typing import Any

from quire.observe.histogram import Histogram, merged, quantile

WINDOW = 10
"""Seconds looked back on, the present one included."""
_BOUNDS = tuple(1e-4 * 1.12**step for step in range(143))
"""From 0.1 ms to about 1,000 s: a quantile is off by less than 12 %."""


class _Second:
    """What happened in one second."""

    __slots__ = ("errors", "gaps", "generation", "number", "prompt", "refused", "requests", "ttft")

    def __init__(self) -> None:
        self.gaps = Histogram(_BOUNDS)
        self.ttft = Histogram(_BOUNDS)
        self.begin(-1)

    def begin(self, number: int) -> None:
        self.number = number
        self.prompt = self.generation = self.requests = self.errors = self.refused = 0
        self.gaps.clear()
        self.ttft.clear()


class Rates:
    """A ring of seconds; each is reused when its turn comes again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = clock()
        self._seconds = [_Second() for _ in range(WINDOW)]

    def first_token(self, seconds: float, prompt_tokens: int, count: int) -> None:
        now = self._now()
        now.ttft.observe(seconds)
        now.prompt += prompt_tokens
        now.generation += count

    def tokens(self, seconds_each: float | None, count: int) -> None:
        now = self._now()
        now.generation += count
        if seconds_each is not None:
            now.gaps.observe(seconds_each, count)

    def finished(self, failed: bool) -> None:
        now = self._now()
        now.requests += 1
        now.errors += failed

    def refused(self) -> None:
        self._now().refused += 1

    def snapshot(self) -> dict[str, Any]:
        """Rates a second and latencies in seconds; a latency is None where nothing was measured."""
        now = self._clock()
        oldest = int(now) - WINDOW + 1
        live = [second for second in self._seconds if second.number >= oldest]
        # A server that has just started is not measured over seconds before its start, nor over a few milliseconds.
        span = max(now - max(float(oldest), self._started), 1.0)
        requests = sum(second.requests for second in live)
        errors = sum(second.errors for second in live)
        ttft = merged((second.ttft for second in live), _BOUNDS)
        gaps = merged((second.gaps for second in live), _BOUNDS)
        return {
            "window_seconds": round(span, 3),
            "prompt_tokens_per_second": sum(second.prompt for second in live) / span,
            "generation_tokens_per_second": sum(second.generation for second in live) / span,
            "requests_per_second": requests / span,
            "errors_per_second": errors / span,
            "refused_per_second": sum(second.refused for second in live) / span,
            "error_share": errors / requests if requests else 0.0,
            "ttft_seconds": {"p50": quantile(ttft, 0.5), "p95": quantile(ttft, 0.95)},
            "itl_seconds": {"p50": quantile(gaps, 0.5), "p95": quantile(gaps, 0.95)},
        }

    def _now(self) -> _Second:
        number = int(self._clock())
        second = self._seconds[number % WINDOW]
        if second.number != number:
            second.begin(number)
        return second
