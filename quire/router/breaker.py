"""Breaker: leaves a member alone that fails again and again, and lets single requests find out whether it is well."""

import time
from collections.abc import Callable
from typing import Literal

_FAILURES = 5
"""In a row, before it opens."""
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0
BreakerState = Literal["closed", "open", "half-open"]


class Breaker:
    """Closed while all is well; open for a pause that grows; half-open while one request tries."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._pause = 0.0
        self._opened = 0.0
        self._is_trying = False

    @property
    def state(self) -> BreakerState:
        if not self._pause:
            return "closed"
        return "open" if self._clock() - self._opened < self._pause else "half-open"

    @property
    def allows(self) -> bool:
        """Whether a request may be sent."""
        state = self.state
        return state == "closed" or (state == "half-open" and not self._is_trying)

    def sending(self) -> None:
        """A request is sent."""
        self._is_trying = self.state == "half-open"

    def ended(self) -> None:
        """A request is over, whatever came of it: its client may have left before anything was known."""
        self._is_trying = False

    def succeeded(self) -> None:
        self._failures, self._pause, self._is_trying = 0, 0.0, False

    def failed(self) -> None:
        self._failures += 1
        if self._pause or self._failures >= _FAILURES:
            self._pause = min(_LONGEST_PAUSE, 2 * self._pause or _FIRST_PAUSE)
            self._opened = self._clock()
            self._is_trying = False
