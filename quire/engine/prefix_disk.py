"""PrefixDisk: prefixes go to disk and come back beside the steps; a request waits outside them while its own is read.

Every full block of the prefix cache is written soon after the step that computed it was read, oldest first. A request
whose prefix is on disk and not on the device is held until it has been read into free blocks of the device, and then
finds it in the prefix cache; where computing takes less time than reading, it is computed.
"""

import time
from collections import deque
from concurrent.futures import Future, wait
from dataclasses import dataclass

from quire.core.sequence import Sequence
from quire.core.status import Status
from quire.engine.disk_copies import Copied, Copy, DiskCopies
from quire.kvcache.disk import DiskTier, Lacking
from quire.kvcache.manager import KVManager
from quire.kvcache.prefix import CachedBlock
from quire.kvcache.table import BlockTable

MOST_AT_ONCE = 32
"""Blocks that are written at a time: they cannot be evicted meanwhile."""
MOST_READS = 4
"""Prompts that are read at once; others are read after them, unless their turn to be computed comes first."""
MOST_WAITING = 256
"""Prompts that may wait so; more are computed."""
_SHARE_OF_FREE = 2
"""Of the free blocks, a read takes one in this many at most: running sequences grow."""
_BYTES_PER_SECOND = 1e9
"""Of a disk that has not been measured yet; most read more."""
_SETUP_SECONDS = 0.002
"""Of a read, whatever its size: the way through two threads and a step."""
_LEAST_MEASURED = 64
"""Tokens of a step by which computing is measured: a step of decodes says nothing about prompts."""
_FORGETTING = 0.3


@dataclass(frozen=True, slots=True)
class _Read:
    lacking: list[Lacking]
    entries: list[CachedBlock]
    """What blocks of the device will hold when it is done."""
    tokens: int
    """That need not be computed by it."""
    copied: "Future[Copied]"
    ready: "Future[None]"


@dataclass(frozen=True, slots=True)
class _Write:
    entries: list[CachedBlock]
    slots: list[int]
    copied: "Future[Copied]"


class PrefixDisk:
    """Of one engine."""

    def __init__(
        self, kv: KVManager, tier: DiskTier, copies: DiskCopies, block_bytes: int, token_seconds: float
    ) -> None:
        """`token_seconds` is what computing a token of a prompt should take, until that is measured."""
        self.tier = tier
        self.block_bytes = block_bytes
        self._kv = kv
        self._copies = copies
        self._unsaved: deque[CachedBlock] = deque()
        kv.device.unsaved = self._unsaved
        self._write: _Write | None = None
        self._reads: list[_Read] = []
        self._later: deque[Sequence] = deque()
        """Those that found no room to be read into."""
        self._token_seconds = token_seconds
        self._byte_seconds = 1 / _BYTES_PER_SECOND

    @property
    def is_busy(self) -> bool:
        """Whether there is something to take in or to write."""
        return bool(self._write or self._reads or self._unsaved)

    def begin(self, seq: Sequence) -> "Future[None] | None":
        """What a request that has just arrived has to wait for; None: nothing of it comes from disk."""
        table = self._kv.name_blocks(seq)
        if not table.caches or not table.names:
            return None
        before, lacking = self.tier.lacking(table.names, (self._kv.device, self._kv.host))
        underway = {(entry.group, entry.name): read for read in self._reads for entry in read.entries}
        for each in lacking:
            other = underway.get((each.group, table.names[each.position]))
            if other is not None:  # what it lacks is on its way; the rest of it, if any, is computed
                return other.ready
        if not lacking:
            return None
        tokens = (1 + lacking[-1].position - before) * self._kv.block_size
        if self._seconds_to_read(len(lacking)) >= tokens * self._token_seconds:
            return None
        if len(self._reads) >= MOST_READS or len(lacking) * _SHARE_OF_FREE > self._kv.num_free:
            if len(self._later) < MOST_WAITING:
                self._later.append(seq)
            return None
        return self._begin_read(seq, table, lacking, tokens)

    def advance(self, step: int) -> None:
        """Take in what was copied and begin to write what can be; `step` is the last that is known to have run."""
        if self._reads:
            self._take_in_reads()
        if self._write is not None and self._write.copied.done():
            self._end_write(self._write)
        if self._unsaved and self._write is None:
            self._begin_write(step)

    def begin_late(self) -> "list[tuple[Sequence, Future[None]]]":
        """Requests for whose reading there is room only now, and what they wait for."""
        begun: list[tuple[Sequence, Future[None]]] = []
        for _ in range(min(len(self._later), MOST_READS - len(self._reads))):
            seq = self._later.popleft()
            reading = self.begin(seq) if seq.status is Status.WAITING else None  # or it was computed, or is gone
            if reading is not None:
                begun.append((seq, reading))
        return begun

    def computed(self, tokens: int, seconds: float) -> None:
        """A step ran: that is what computing takes."""
        if tokens >= _LEAST_MEASURED:
            self._token_seconds += _FORGETTING * (seconds / tokens - self._token_seconds)

    def settle(self, step: int, seconds: float) -> None:
        """Write what there is to write, for at most so long, while no step runs."""
        end = time.monotonic() + seconds
        while self.is_busy and time.monotonic() < end:
            self.advance(step)
            under_way = [read.copied for read in self._reads]
            under_way += [] if self._write is None else [self._write.copied]
            if not under_way:  # the rest cannot be written
                break
            wait(under_way, timeout=max(0.0, end - time.monotonic()))

    def forget_device(self) -> None:
        """The device's blocks are about to hold nothing: end every copy, whatever came of it."""
        while self._reads or self._write is not None:
            wait([read.copied for read in self._reads] + ([] if self._write is None else [self._write.copied]))
            self._take_in_reads()
            if self._write is not None:
                self._end_write(self._write)
        self._unsaved.clear()

    def close(self) -> None:
        self._copies.close()

    # -- reading -----------------------------------------------------------------------------------------------

    def _begin_read(self, seq: Sequence, table: BlockTable, lacking: list[Lacking], tokens: int) -> "Future[None]":
        reserved = zip(self._kv.reserve(len(lacking)), lacking, strict=True)
        entries = [self._kv.entry(seq, table, each.group, each.position, block) for block, each in reserved]
        self.tier.begin_read(lacking)
        copies = [_copy(entry, each.slot) for entry, each in zip(entries, lacking, strict=True)]
        read = _Read(lacking, entries, tokens, self._copies.load(copies), Future())
        self._reads.append(read)
        return read.ready

    def _take_in_reads(self) -> None:
        done = [read for read in self._reads if read.copied.done()]
        self._reads = [read for read in self._reads if not read.copied.done()]
        for read in done:
            error = read.copied.exception()
            worked = [False] * len(read.entries) if error is not None else read.copied.result().worked
            for each, entry, is_there in zip(read.lacking, read.entries, worked, strict=True):
                self.tier.end_read(each.slot, worked=is_there)
                if is_there:
                    self._kv.device.add(entry)
            self._kv.let_go([entry.block for entry in reversed(read.entries)])
            if error is None:
                self._measure(read.copied.result())
            if all(worked):
                self.tier.stats.hits += read.tokens
            read.ready.set_result(None)  # what could not be read is computed

    def _measure(self, copied: Copied) -> None:
        took = copied.seconds / (len(copied.worked) * self.block_bytes)
        self._byte_seconds += _FORGETTING * (took - self._byte_seconds)

    def _seconds_to_read(self, num_blocks: int) -> float:
        return _SETUP_SECONDS + num_blocks * self.block_bytes * self._byte_seconds

    # -- writing -----------------------------------------------------------------------------------------------

    def _begin_write(self, step: int) -> None:
        entries: list[CachedBlock] = []
        slots: list[int] = []
        while self._unsaved and len(entries) < MOST_AT_ONCE:
            entry = self._unsaved[0]
            if entry.step > step:
                break
            self._unsaved.popleft()
            # it may have been evicted, or rolled back, or be there already
            if self._kv.device.index.get(entry.block) is not entry or self.tier.has(entry):
                continue
            slot = self.tier.begin_write()
            if slot is None:
                break
            entries.append(entry)
            slots.append(slot)
        if not entries:
            return
        self._kv.hold([entry.block for entry in entries])
        device = self._kv.device.pool
        copies = [
            _copy(entry, slot, is_retained=device.is_retained(entry.block))
            for entry, slot in zip(entries, slots, strict=True)
        ]
        self._write = _Write(entries, slots, self._copies.save(copies))

    def _end_write(self, write: _Write) -> None:
        self._write = None
        failed = write.copied.exception() is not None
        worked = [False] * len(write.slots) if failed else write.copied.result().worked
        device = self._kv.device.pool
        for slot, entry, is_there in zip(write.slots, write.entries, worked, strict=True):
            self.tier.end_write(slot, entry, worked=is_there, is_retained=device.is_retained(entry.block))
        self._kv.let_go([entry.block for entry in reversed(write.entries)])


def _copy(entry: CachedBlock, slot: int, *, is_retained: bool = False) -> Copy:
    assert entry.name is not None, "only full blocks are copied"
    return Copy(entry.block, slot, entry.group, entry.name, is_retained)
