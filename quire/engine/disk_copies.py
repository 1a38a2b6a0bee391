"""DiskCopies: threads that copy KV blocks between the device and the files of the disk tier, beside the steps."""

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier

from quire.core.carried_blocks import CarriedBlocks
from quire.kvcache.segments import Damaged, Segments

AT_ONCE = 16
"""Blocks that are copied together: what lies between device and disk stays small."""
_READERS = 2
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Copy:
    """One block of the device and its slot on disk."""

    block: int
    slot: int
    group: int
    name: bytes
    is_retained: bool = False


@dataclass(frozen=True, slots=True)
class Copied:
    """What became of a list of copies, in its order, and how long it took."""

    worked: list[bool]
    seconds: float


class DiskCopies:
    """One thread writes, so that a disk is never flooded, and a few read, since requests wait for them."""

    def __init__(self, segments: Segments, blocks: Callable[[], CarriedBlocks]) -> None:
        """`blocks` are the device's as they are now: a worker that has slept deeply has others."""
        self.segments = segments
        self._blocks = blocks
        self._writer = ThreadPoolExecutor(1, "quire-kv-write")
        self._readers = ThreadPoolExecutor(_READERS, "quire-kv-read")
        self._warned = False
        # a thread that begins when memory is short may not come to be, which would end the engine: they begin here
        all_there = Barrier(1 + _READERS)
        for pool in (self._writer, *[self._readers] * _READERS):
            pool.submit(all_there.wait)

    def save(self, copies: Sequence[Copy]) -> "Future[Copied]":
        """Begin to write blocks that no step writes to."""
        return self._writer.submit(self._save, list(copies), self._blocks())

    def load(self, copies: Sequence[Copy]) -> "Future[Copied]":
        """Begin to fill blocks that no step uses; called by the thread that starts steps."""
        blocks = self._blocks()
        return self._readers.submit(self._load, list(copies), blocks, blocks.fence())

    def close(self) -> None:
        """Waits for what was begun."""
        self._writer.shutdown()
        self._readers.shutdown()
        self.segments.close()

    def _save(self, copies: list[Copy], blocks: CarriedBlocks) -> Copied:
        begun, worked = time.monotonic(), list[bool]()
        for part in _parts(copies):
            data = blocks.buffer(len(part))
            blocks.read([copy.block for copy in part], data)
            for copy, bytes_of_block in zip(part, _cut(data, len(part)), strict=True):
                try:
                    self.segments.write(copy.slot, copy.group, copy.name, bytes_of_block, is_retained=copy.is_retained)
                except (OSError, Damaged) as error:
                    self._warn("a KV block could not be written to disk: %s", error)
                    worked.append(False)
                else:
                    worked.append(True)
        return Copied(worked, time.monotonic() - begun)

    def _load(self, copies: list[Copy], blocks: CarriedBlocks, fence: object) -> Copied:
        begun, worked = time.monotonic(), list[bool]()
        for part in _parts(copies):
            data = blocks.buffer(len(part))
            for copy, bytes_of_block in zip(part, _cut(data, len(part)), strict=True):
                try:
                    self.segments.read(copy.slot, copy.name, bytes_of_block)
                except (OSError, Damaged) as error:
                    self._warn("a KV block on disk is not used, and computed instead: %s", error)
                    worked.append(False)
                else:
                    worked.append(True)
            blocks.write([copy.block for copy in part], data, fence)
        return Copied(worked, time.monotonic() - begun)

    def _warn(self, what: str, error: Exception) -> None:
        """Once: a metric counts the rest."""
        if not self._warned:
            self._warned = True
            _log.warning(what + "; further ones are only counted", error)


def _parts(copies: list[Copy]) -> list[list[Copy]]:
    return [copies[start : start + AT_ONCE] for start in range(0, len(copies), AT_ONCE)]


def _cut(data: memoryview, count: int) -> list[memoryview]:
    size = len(data) // count
    return [data[start : start + size] for start in range(0, len(data), size)]
