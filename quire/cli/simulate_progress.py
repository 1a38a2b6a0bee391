"""One line on standard error that says how far a simulation is, when someone is watching."""

import sys
import time
from threading import Lock
from types import TracebackType
from typing import Self

from quire.simulation.cluster import OnProgress

_EVERY = 0.2
"""Seconds between two writings of the line."""


class ProgressLine:
    """Counts what several threads report. Writes nothing when standard error is not a terminal."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._visible = sys.stderr.isatty()
        self._total = 0
        self._done = 0
        self._start = self._written = time.monotonic()

    def expect(self, total: int) -> OnProgress:
        """`total` requests will come; returns what counts them."""
        self._total = total
        return self._count

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._visible:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def _count(self, count: int) -> None:
        with self._lock:
            self._done += count
            now = time.monotonic()
            if self._visible and now - self._written >= _EVERY:
                self._written = now
                share = self._done / self._total
                line = f"\r\033[K{share:4.0%}  {self._done:,} of {self._total:,} requests, {now - self._start:.0f} s"
                print(line, end="", file=sys.stderr, flush=True)
