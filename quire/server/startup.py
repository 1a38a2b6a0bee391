"""Where the time of a start goes, for the log and /stats."""

import os
import time
from contextlib import suppress

from quire.observe.start_clock import Parts, StartClock, parts_table
from quire.serving.messages import Started


class StartUp:
    """Phases of this process from its very beginning; an engine's own come from the engine."""

    def __init__(self) -> None:
        self._clock = StartClock(time.monotonic() - _process_age())

    @property
    def parts(self) -> Parts:
        """Of every phase that is over, in their order; it grows while more of them end."""
        return self._clock.parts

    def done(self, phase: str) -> None:
        """Everything since the last call was `phase`."""
        self._clock.done(phase)

    def told(self, started: Started | None = None) -> str:
        """The whole of it, as a table; with the engine's own parts where they are known."""
        engine = {} if started is None else {"engine, meanwhile": started.seconds}
        table = parts_table({"server": self._clock.parts, **engine})
        return f"{self._clock.total:.2f} s after the start\n{table}"


_LONGEST_BEFORE = 30.0
"""Seconds that a process may take to get here. An older one was the shell of `scripts/serve` until the packages were
installed, and the time of that is not told as quire's."""


def _process_age() -> float:
    """Seconds since this process was started, or those it has computed; 0 where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
            # the second field is a name in parentheses, which may hold anything
            ticks = int(file.read().rpartition(")")[2].split()[19])
        age = max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
        return age if age <= _LONGEST_BEFORE else time.process_time()
    return 0.0
