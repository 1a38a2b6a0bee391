"""Where the time of a start goes, for the log and /stats."""

import os
import time
from contextlib import suppress

from quire.engine.serving.messages import Started


class StartUp:
    """Phases of this process from its very beginning; an engine's own come from the engine."""

    def __init__(self) -> None:
        self._began = time.monotonic() - _process_age()
        self._last = self._began
        self.seconds: dict[str, float] = {}
        """Of every phase that is over, in their order."""

    def done(self, phase: str) -> None:
        """Everything since the last call was `phase`."""
        now = time.monotonic()
        self.seconds[phase] = now - self._last
        self._last = now

    def told(self, started: Started) -> str:
        """The whole of it, in a line."""
        total = time.monotonic() - self._began
        here = ", ".join(f"{phase} {seconds:.2f} s" for phase, seconds in self.seconds.items())
        there = ", ".join(f"{phase} {seconds:.2f} s" for phase, seconds in started.seconds)
        return f"{total:.2f} s after the start (server: {here}; meanwhile the engine: {there})"


def _process_age() -> float:
    """Seconds since this process was started; 0 where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
            # the second field is a name in parentheses, which may hold anything
            ticks = int(file.read().rpartition(")")[2].split()[19])
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    return 0.0
