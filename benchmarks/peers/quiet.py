"""Whether anything but us kept the processors busy, without which no figure means much.

Of all processor time that the kernel counted, what belongs to this process and its descendants is taken off; what the
host of a virtual machine took away (steal) counts as others'.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")
_TICKS = os.sysconf("SC_CLK_TCK")
_LOOK = 0.5
"""Seconds over which the machine must be idle before a run starts."""


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """Seconds of processor time since boot, at one moment."""

    at: float
    everyone: float
    ours: float

    @classmethod
    def now(cls) -> "ProcessorTime":
        fields = [int(word) for word in Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:]]
        user, nice, system, _idle, _waiting, interrupts, soft_interrupts, stolen = fields[:8]
        everyone = (user + nice + system + interrupts + soft_interrupts + stolen) / _TICKS
        return cls(time.monotonic(), everyone, _ours())


def others_between(start: ProcessorTime, end: ProcessorTime) -> float:
    """Processors that other processes kept busy, on average."""
    foreign = (end.everyone - start.everyone) - (end.ours - start.ours)
    return max(0.0, foreign / (end.at - start.at))


def wait_until_quiet(most: float = 0.1, patience: float = 600.0) -> None:
    """Return when others use less than `most` processors, or when patience has run out."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        start = ProcessorTime.now()
        time.sleep(_LOOK)
        if others_between(start, ProcessorTime.now()) < most:
            return


def watched(work: Callable[[], Result]) -> tuple[Result, float]:
    """What `work` returned, and how many processors others used meanwhile."""
    start = ProcessorTime.now()
    result = work()
    return result, others_between(start, ProcessorTime.now())


def descendants(root: int) -> list[int]:
    """`root` and every process that came from it and still lives."""
    parents = {pid: int(fields[1]) for pid, fields in _all_stats().items()}
    found = [root]
    for pid in found:
        found.extend(child for child, parent in parents.items() if parent == pid)
    return found


def _ours() -> float:
    stats = _all_stats()
    # own and waited-for children's time, user and system: fields 14 to 17 of /proc/PID/stat
    ticks = [sum(int(word) for word in stats[pid][11:15]) for pid in descendants(os.getpid()) if pid in stats]
    return sum(ticks) / _TICKS


def _all_stats() -> dict[int, list[str]]:
    """The fields of /proc/PID/stat behind the name, which may itself have spaces."""
    stats = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stats[int(folder.name)] = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            except OSError:
                continue  # it ended meanwhile
    return stats
