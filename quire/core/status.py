"""The states of a sequence, which may follow which, and what a client is told at the end."""

from enum import IntEnum
from typing import Literal

FinishReason = Literal["stop", "length", "abort", "deadline", "queue_timeout", "error"]


class Status(IntEnum):
    """Ordered: below `RUNNING` a sequence queues, from `STOPPED` on it has ended."""

    WAITING = 0
    """Queued; nothing computed by itself yet."""
    PREEMPTED = 1
    """Queued; its blocks were dropped and will be recomputed where the prefix cache no longer has them."""
    SWAPPED = 2
    """Queued; its blocks are on the CPU tier."""
    PAUSED = 3
    """Queued; without a row, its blocks still on the device."""
    RUNNING = 4
    """Has a row on the device."""
    STOPPED = 5
    LENGTH = 6
    ABORTED = 7
    DEADLINE = 8
    QUEUE_TIMEOUT = 9
    FAILED = 10

    @property
    def is_finished(self) -> bool:
        return self >= Status.STOPPED


_ENDS = frozenset(status for status in Status if status.is_finished)

TRANSITIONS: dict[Status, frozenset[Status]] = {
    Status.WAITING: _ENDS | {Status.RUNNING, Status.PAUSED},
    Status.PREEMPTED: _ENDS | {Status.RUNNING},
    Status.SWAPPED: _ENDS | {Status.RUNNING, Status.PREEMPTED},
    Status.PAUSED: _ENDS | {Status.RUNNING, Status.PREEMPTED, Status.SWAPPED},
    Status.RUNNING: _ENDS | {Status.PAUSED, Status.PREEMPTED, Status.SWAPPED},
} | {end: frozenset() for end in _ENDS}
"""Which states may follow which. WAITING becomes PAUSED when a sibling's blocks are forked into it."""

FINISH_REASONS: dict[Status, FinishReason] = {
    Status.STOPPED: "stop",
    Status.LENGTH: "length",
    Status.ABORTED: "abort",
    Status.DEADLINE: "deadline",
    Status.QUEUE_TIMEOUT: "queue_timeout",
    Status.FAILED: "error",
}
"""The one place where an end becomes a word that clients read."""
