"""Carriage: what went one way between this engine and others since the start, counted by the threads that carry it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

OnCarried = Callable[[float, float, int], None]
"""Is told when a piece began and ended to be carried, on `time.perf_counter`, and its bytes; in any thread."""


@dataclass(slots=True)
class Carriage:
    """Read by anyone at any time; added to under its own lock."""

    blocks: int = 0
    bytes: int = 0
    seconds: float = 0.0
    """Spent carrying, checksums included."""
    corrupt: int = 0
    """Blocks that came with other bytes than their sender read."""
    refused: int = 0
    """Connections to or from engines that came to nothing: KV of another format, no proof, nobody there."""
    watcher: OnCarried | None = None
    _lock: Lock = field(default_factory=Lock, repr=False)

    def carried(self, blocks: int, num_bytes: int, begun: float, corrupt: int = 0) -> None:
        """These have been, since `begun`."""
        now = time.perf_counter()
        with self._lock:
            self.seconds += now - begun
            self.blocks += blocks
            self.bytes += num_bytes
            self.corrupt += corrupt
        if self.watcher is not None:
            self.watcher(begun, now, num_bytes)

    def refuse(self) -> None:
        with self._lock:
            self.refused += 1
