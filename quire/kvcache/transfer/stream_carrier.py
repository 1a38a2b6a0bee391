"""Blocks as bytes in the stream of a connection, behind the message that tells of them: from where they lie and to
where they belong, where that is host memory, and else through locked memory."""

import socket
import ssl
import struct
from collections.abc import Sequence
from mmap import mmap
from typing import Any

from quire.core.carried_blocks import CarriedBlocks, NearBlocks
from quire.kvcache.checksum import checksum_of
from quire.kvcache.transfer.carrier import FRAME_BYTES, STALLED_SECONDS
from quire.kvcache.transfer.checked_copies import read_checked, write_checked
from quire.kvcache.transfer.wire import (
    Done,
    Kept,
    Pieces,
    TransferRefused,
    Welcome,
    frame,
    receive_into,
    receive_views,
    send_views,
    send_welcome,
)


class StreamOut:
    """An Outbound."""

    def __init__(self, connection: socket.socket, blocks: CarriedBlocks) -> None:
        self.frame_blocks = max(1, FRAME_BYTES // blocks.block_bytes)
        self._connection = connection
        self._blocks = blocks
        self._room = memoryview(bytearray())
        # a host that stands still answers for its processes: without a limit its blocks would stay lent
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(STALLED_SECONDS), 0))

    def welcome(self) -> None:
        send_welcome(self._connection, Welcome())

    def say(self, message: Done | Kept) -> None:
        self._connection.sendall(frame(message))

    def room(self) -> int:
        return -1

    def send(self, room: int, number: int, places: list[int], blocks: list[int]) -> Sequence[int]:
        if isinstance(self._blocks, NearBlocks):
            views = self._blocks.views(blocks)
            pieces = Pieces(number, places, checksum_of(views), room, by_plane=True)
        else:
            self._room = room_for(self._blocks, len(blocks), self._room)
            views = [self._room[: len(blocks) * self._blocks.block_bytes]]
            checksum, by_plane = read_checked(self._blocks, blocks, views[0])
            pieces = Pieces(number, places, checksum, room, by_plane)
        try:
            send_views(self._connection, [memoryview(frame(pieces)), *views])
        except (BlockingIOError, ssl.SSLWantWriteError):
            raise TransferRefused(f"it has taken nothing for {STALLED_SECONDS:.0f} s") from None
        return blocks

    def taken(self, slot: int) -> Sequence[int]:
        return ()

    def rest(self) -> float:
        return STALLED_SECONDS

    def end(self) -> Sequence[int]:
        return ()


class StreamIn:
    """An Inbound."""

    asks = False

    def __init__(self, connection: socket.socket, blocks: CarriedBlocks, num_planes: int) -> None:
        self._connection = connection
        self._blocks = blocks
        self._num_planes = num_planes
        self._room = memoryview(bytearray())

    def take(self, pieces: Pieces, blocks: list[int], fence: Any) -> bool:
        if pieces.by_plane and isinstance(self._blocks, NearBlocks):
            views = self._blocks.views(blocks)
            receive_views(self._connection, views)
            return checksum_of(views) == pieces.checksum
        self._room = room_for(self._blocks, len(blocks), self._room)
        memory = self._room[: len(blocks) * self._blocks.block_bytes]
        receive_into(self._connection, memory)
        return write_checked(self._blocks, blocks, memory, pieces, fence, self._num_planes)

    def close(self) -> None:
        """The connection is the line's."""


def room_for(blocks: CarriedBlocks, count: int, room: memoryview) -> memoryview:
    """Locked memory for so many: what there is, or new where that is too small."""
    size = count * blocks.block_bytes
    if room.nbytes >= size:
        return room
    made = memoryview(mmap(-1, size))
    blocks.lock(made)
    return made
