"""The KV blocks of another rank's process: what the first rank asks for over a socket pair, and who answers there.

Bytes go through memory that both map. A rank answers in a thread of its own, beside its steps.
"""

import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Condition, Lock
from typing import Any, NamedTuple

import msgspec

from quire.config.resolved import KVLayout
from quire.core.carried_blocks import CarriedBlocks
from quire.kvcache.storage_shape import StorageShape
from quire.kvcache.transfer.ranked_blocks import RankedBlocks
from quire.kvcache.transfer.shared_slots import SharedSlots
from quire.kvcache.transfer.staged_blocks import StagedBlocks
from quire.kvcache.transfer.wire import receive_bytes

_SLOT_BLOCKS = 8
_DONE = b"."


class Told(NamedTuple):
    """What the first rank has told the others: the last step, and how often to wake up."""

    step: int = 0
    wakes: int = 0


class _Ask(msgspec.Struct, frozen=True):
    """Copy these blocks to the shared memory, or from there once the rank has done what it was told."""

    blocks: list[int]
    is_write: bool
    after: Told = Told()


_decode = msgspec.msgpack.Decoder(_Ask).decode


class RankProgress:
    """How far a rank's own thread has come with what it was told, for others to wait for: which step it gave to its
    device last, and how often it woke up. A rank that is still to fall asleep would lose what is written to its blocks.
    """

    def __init__(self) -> None:
        self._done = Told()
        self._changed = Condition()

    def begun(self, step: int) -> None:
        self._note(self._done._replace(step=step))

    def woke(self) -> None:
        self._note(self._done._replace(wakes=self._done.wakes + 1))

    def wait_for(self, told: Told) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._done.step >= told.step and self._done.wakes >= told.wakes)

    def _note(self, done: Told) -> None:
        with self._changed:
            self._done = done
            self._changed.notify_all()


class RankBlocks:
    """Those of one other rank, seen from the first; a CarriedBlocks."""

    def __init__(self, connection: socket.socket, layout: KVLayout, told: Callable[[], Told]) -> None:
        """`layout` is that rank's; `told` is what ranks were told until now."""
        self.block_bytes = block_bytes = StorageShape(layout).block_bytes
        self._connection = connection
        self._told = told
        self._lock = Lock()
        self._slots = SharedSlots(_SLOT_BLOCKS * block_bytes, 1)
        assert self._slots.descriptor is not None
        socket.send_fds(connection, [_DONE], [self._slots.descriptor])
        self._slots.close_descriptor()

    def buffer(self, count: int) -> memoryview:
        return memoryview(bytearray(count * self.block_bytes))

    def lock(self, memory: memoryview) -> None:
        """What is shared is locked by the rank."""

    def fence(self) -> Any:
        return self._told()

    def read(self, blocks: Sequence[int], target: memoryview) -> None:
        with self._lock:
            for start in range(0, len(blocks), _SLOT_BLOCKS):
                some = list(blocks[start : start + _SLOT_BLOCKS])
                self._ask(_Ask(some, is_write=False))
                size = len(some) * self.block_bytes
                target[start * self.block_bytes :][:size] = self._slots.whole[:size]

    def write(self, blocks: Sequence[int], source: memoryview, fence: Any) -> None:
        with self._lock:
            for start in range(0, len(blocks), _SLOT_BLOCKS):
                some = list(blocks[start : start + _SLOT_BLOCKS])
                size = len(some) * self.block_bytes
                self._slots.whole[:size] = source[start * self.block_bytes :][:size]
                self._ask(_Ask(some, is_write=True, after=fence))

    def _ask(self, asked: _Ask) -> None:
        data = msgspec.msgpack.encode(asked)
        self._connection.sendall(len(data).to_bytes(4, "little") + data)
        receive_bytes(self._connection, len(_DONE))


def blocks_of_ranks(parts: Sequence[CarriedBlocks], layouts: Sequence[KVLayout], num_heads: int) -> CarriedBlocks:
    """Those of all ranks together: `parts` by rank, counted from the last stage on, and `layouts` by stage."""
    ranks = len(parts) // len(layouts)
    stages = [
        parts[start] if ranks == 1 else RankedBlocks(parts[start : start + ranks], layout, num_heads)
        for layout, start in zip(reversed(layouts), range(0, len(parts), ranks), strict=True)
    ]
    return stages[0] if len(stages) == 1 else StagedBlocks(stages[::-1])


def serve_rank_blocks(connection: socket.socket, blocks: CarriedBlocks, progress: RankProgress) -> None:
    """Answer for one rank until the connection ends; to be run beside its steps."""
    with suppress(EOFError, OSError):
        _, descriptors, _, _ = socket.recv_fds(connection, len(_DONE), 1)
        if not descriptors:
            return
        slots = SharedSlots(_SLOT_BLOCKS * blocks.block_bytes, 1, descriptors[0])
        slots.close_descriptor()
        blocks.lock(slots.whole)
        while True:
            asked = _decode(receive_bytes(connection, int.from_bytes(receive_bytes(connection, 4), "little")))
            memory = slots.whole[: len(asked.blocks) * blocks.block_bytes]
            if asked.is_write:
                progress.wait_for(asked.after)
                blocks.write(asked.blocks, memory, blocks.fence())
            else:
                blocks.read(asked.blocks, memory)
            connection.sendall(_DONE)
