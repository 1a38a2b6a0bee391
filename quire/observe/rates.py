"""Rates: what happened in the last ten seconds, for /stats and the console. Memory is fixed, whatever the traffic."""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from quire.observe import histogram
from quire.observe.histogram import Histogram, quantile

WINDOW = 10
"""Seconds looked back on, the present one included."""
_BOUNDS = tuple(1e-4 * 1.12**step for step in range(143))
"""From 0.1 ms to about 1,000 s: a quantile is off by less than 12 %."""
_COUNTS = ("prompt", "generation", "requests", "errors", "refused")


@dataclass(slots=True)
class Second:
    """What happened in one second; `number` is that of the monotonic clock, which all processes of a host share."""

    number: int
    prompt: int = 0
    generation: int = 0
    requests: int = 0
    errors: int = 0
    refused: int = 0
    gaps: Histogram = field(default_factory=lambda: Histogram.over(_BOUNDS))
    ttft: Histogram = field(default_factory=lambda: Histogram.over(_BOUNDS))


class Window(msgspec.Struct, array_like=True):
    """The last seconds of a front, or of several; those in which nothing happened are left out."""

    since: float = math.inf
    """When the first of the fronts began to count."""
    seconds: list[Second] = []


class Rates:
    """A ring of seconds; each makes room when its turn comes again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = clock()
        self._seconds = [Second(-1) for _ in range(WINDOW)]

    def first_token(self, seconds: float, prompt_tokens: int, count: int) -> None:
        now = self._now()
        now.ttft.observe(_BOUNDS, seconds)
        now.prompt += prompt_tokens
        now.generation += count

    def tokens(self, seconds_each: float | None, count: int) -> None:
        now = self._now()
        now.generation += count
        if seconds_each is not None:
            now.gaps.observe(_BOUNDS, seconds_each, count)

    def finished(self, failed: bool) -> None:
        now = self._now()
        now.requests += 1
        now.errors += failed

    def refused(self) -> None:
        self._now().refused += 1

    def window(self) -> Window:
        """A copy of the last seconds."""
        live = _since(_oldest(self._clock()), self._seconds)
        copies = [replace(second, gaps=second.gaps.copy(), ttft=second.ttft.copy()) for second in live]
        return Window(self._started, copies)

    def snapshot(self, window: Window | None = None) -> dict[str, Any]:
        """Rates a second and latencies in seconds, its own or those of `window`; without measurements, None."""
        window = window or self.window()
        now = self._clock()
        oldest = _oldest(now)
        # A server that has just started is not measured over seconds before its start, nor over a few milliseconds.
        span = max(now - max(float(oldest), window.since), 1.0)
        total = _sum(oldest, _since(oldest, window.seconds))
        return {
            "window_seconds": round(span, 3),
            "prompt_tokens_per_second": total.prompt / span,
            "generation_tokens_per_second": total.generation / span,
            "requests_per_second": total.requests / span,
            "errors_per_second": total.errors / span,
            "refused_per_second": total.refused / span,
            "error_share": total.errors / total.requests if total.requests else 0.0,
            "ttft_seconds": _quantiles(total.ttft),
            "itl_seconds": _quantiles(total.gaps),
        }

    def _now(self) -> Second:
        number = int(self._clock())
        second = self._seconds[number % WINDOW]
        if second.number != number:
            second = self._seconds[number % WINDOW] = Second(number)
        return second


def merged(windows: Iterable[Window]) -> Window:
    """What all of them saw, second by second."""
    every = list(windows)
    by_number: dict[int, list[Second]] = {}
    for window in every:
        for second in window.seconds:
            by_number.setdefault(second.number, []).append(second)
    since = min((window.since for window in every), default=math.inf)
    return Window(since, [_sum(number, seconds) for number, seconds in by_number.items()])


def _sum(number: int, seconds: list[Second]) -> Second:
    return Second(
        number,
        **{name: sum(getattr(second, name) for second in seconds) for name in _COUNTS},
        gaps=histogram.merged(second.gaps for second in seconds),
        ttft=histogram.merged(second.ttft for second in seconds),
    )


def _oldest(now: float) -> int:
    return int(now) - WINDOW + 1


def _since(oldest: int, seconds: list[Second]) -> list[Second]:
    return [second for second in seconds if second.number >= oldest]


def _quantiles(seconds: Histogram) -> dict[str, float | None]:
    return {"p50": quantile(seconds, _BOUNDS, 0.5), "p95": quantile(seconds, _BOUNDS, 0.95)}
