"""Blocks through memory that two processes of one host map: one copy into a slot of it, one out of it."""

import socket
from collections.abc import Sequence
from typing import Any

from quire.core.carried_blocks import CarriedBlocks
from quire.kvcache.transfer.carrier import FRAME_BYTES, STALLED_SECONDS
from quire.kvcache.transfer.checked_copies import read_checked, write_checked
from quire.kvcache.transfer.lent_slots import LentSlots
from quire.kvcache.transfer.shared_slots import SharedSlots
from quire.kvcache.transfer.wire import Done, Kept, Pieces, Welcome, frame, send_welcome

NUM_SLOTS = 4


class SlotsOut:
    """An Outbound. The memory is as old as the connection."""

    def __init__(self, connection: socket.socket, blocks: CarriedBlocks) -> None:
        self.frame_blocks = max(1, FRAME_BYTES // blocks.block_bytes)
        self._slot_bytes = self.frame_blocks * blocks.block_bytes
        self._connection = connection
        self._blocks = blocks
        self._memory = SharedSlots(self._slot_bytes, NUM_SLOTS)
        self._lent = LentSlots(NUM_SLOTS)
        blocks.lock(self._memory.whole)

    def welcome(self) -> None:
        send_welcome(self._connection, Welcome(self._slot_bytes, NUM_SLOTS), self._memory.descriptor)
        self._memory.close_descriptor()

    def say(self, message: Done | Kept) -> None:
        self._connection.sendall(frame(message))

    def room(self) -> int:
        return self._lent.next(self.rest)

    def send(self, room: int, number: int, places: list[int], blocks: list[int]) -> Sequence[int]:
        memory = self._memory.slot(room)[: len(blocks) * self._blocks.block_bytes]
        checksum, by_plane = read_checked(self._blocks, blocks, memory)
        self._lent.lend(room, ())
        self._connection.sendall(frame(Pieces(number, places, checksum, room, by_plane)))
        return blocks

    def taken(self, slot: int) -> Sequence[int]:
        return self._lent.taken(slot)

    def rest(self) -> float:
        self._lent.check_patience()
        return STALLED_SECONDS

    def end(self) -> Sequence[int]:
        return self._lent.end()


class SlotsIn:
    """An Inbound, of memory that a descriptor stands for."""

    asks = False

    def __init__(self, blocks: CarriedBlocks, num_planes: int, welcome: Welcome, descriptor: int) -> None:
        self._blocks = blocks
        self._num_planes = num_planes
        self._memory = SharedSlots(welcome.slot_bytes, welcome.num_slots, descriptor)
        self._memory.close_descriptor()
        blocks.lock(self._memory.whole)

    def take(self, pieces: Pieces, blocks: list[int], fence: Any) -> bool:
        memory = self._memory.slot(pieces.slot)[: len(blocks) * self._blocks.block_bytes]
        return write_checked(self._blocks, blocks, memory, pieces, fence, self._num_planes)

    def close(self) -> None:
        """The memory goes with whoever maps it."""
