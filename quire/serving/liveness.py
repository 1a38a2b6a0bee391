"""Liveness: whether a silent process is at work or stuck, by what the system says of it.

A long step uses the processor; a deadlock, or a process that was stopped, does not. Waiting for a disk is work too.
"""

import os
import time
from contextlib import suppress
from pathlib import Path

LIFELESS_AFTER = 20.0
"""Seconds without a word and without the processor after which a process is given up."""
LIFELESS_START_AFTER = 60.0
"""The same for a process that starts: it may wait for compilers, drivers and file servers."""
_LEAST_WORK = 0.01
"""Share of the time that a process at work uses the processor at the very least."""
_WAITS_FOR_DISK = "D"
_STOPPED = frozenset("Tt")


class Liveness:
    """Looked at again and again while a process is silent."""

    def __init__(self, pid: int) -> None:
        self._stat = Path(f"/proc/{pid}/stat")
        self._since = time.monotonic()
        self._used = 0.0

    def heard(self) -> None:
        """It reported: processor time counts from here on."""
        self._since = time.monotonic()
        self._used, _ = self._look()

    def is_lifeless(self, *, is_starting: bool = False) -> bool:
        """Whether it has done nothing since it was last heard; never where the system does not say."""
        silent = time.monotonic() - self._since
        if silent < LIFELESS_AFTER:
            return False
        used, state = self._look()
        if not state or (is_starting and silent < LIFELESS_START_AFTER and state not in _STOPPED):
            return False
        if state == _WAITS_FOR_DISK or used - self._used > _LEAST_WORK * silent:
            self._since, self._used = time.monotonic(), used
            return False
        return True

    def _look(self) -> tuple[float, str]:
        """Seconds of processor time, and the state's letter."""
        with suppress(OSError, ValueError, IndexError):
            # the second field is a name in parentheses, which may hold anything
            fields = self._stat.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), fields[0]
        return 0.0, ""
