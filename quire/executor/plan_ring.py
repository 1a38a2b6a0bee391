"""PlanRing: shared memory through which one process sends frames to others of its host, all of them at once.

A frame is written once and one system call wakes whoever waits, however many there are; sockets would take a call and a
copy for each. The memory has no name in any folder and goes with the last process that maps it.
"""

import ctypes
import mmap
import os
import platform
import sys
import time
from collections import deque
from collections.abc import Callable
from zlib import crc32

_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine()) if sys.platform == "linux" else None
"""The system call's number; there is no ring elsewhere."""
_WAIT, _WAKE = 0, 1
_EVERYBODY = 2**31 - 1
_LINE = 64
"""Bytes between counters of different processes, so that they do not share a cache line."""
_HEAD = 8
"""Bytes before a frame: its length and its checksum."""
_WRAP = 0xFFFFFFFF
"""In place of a length: the next frame is at the beginning."""
_ROOM = 4 << 20
_LOOK_SECONDS = 0.5
_FULL_SECONDS = 0.0002
_TORN_SECONDS = 5.0


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_LOOK = _Timespec(int(_LOOK_SECONDS), int(_LOOK_SECONDS % 1 * 1e9))


def has_rings() -> bool:
    """Whether this system has what a ring is made of."""
    return _FUTEX is not None


class _Memory:
    """The mapping: how many frames were written, whether that is all, how many each reader has taken, and frames."""

    def __init__(self, descriptor: int, readers: int, room: int) -> None:
        self._map = mmap.mmap(descriptor, room + (2 + readers) * _LINE)
        self.written = ctypes.c_uint32.from_buffer(self._map, 0)
        self.is_closed = ctypes.c_uint32.from_buffer(self._map, _LINE)
        self.taken = [ctypes.c_uint32.from_buffer(self._map, (2 + reader) * _LINE) for reader in range(readers)]
        self.frames = memoryview(self._map)[(2 + readers) * _LINE :]
        self._address = ctypes.addressof(self.written)
        self._look = ctypes.addressof(_LOOK)
        self._futex = ctypes.CDLL(None).syscall
        self._futex.argtypes = (
            *(ctypes.c_long, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32),
            *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int),
        )

    def wake(self) -> None:
        self._futex(_FUTEX, self._address, _WAKE, _EVERYBODY, None, None, 0)

    def wait(self, written: int) -> None:
        """Until more than that is written; returns now and then without."""
        self._futex(_FUTEX, self._address, _WAIT, written, self._look, None, 0)


class PlanRing:
    """The side that writes. A frame too large for the ring is for its user to send in another way."""

    def __init__(self, readers: int, room: int = _ROOM) -> None:
        self.descriptor = os.memfd_create("quire-plans", os.MFD_CLOEXEC)
        os.ftruncate(self.descriptor, room + (2 + readers) * _LINE)
        self.room = room
        self.readers = readers
        self._memory = _Memory(self.descriptor, readers, room)
        self._count = 0
        """Of frames, which the memory counts only up to 2**32."""
        self._next = 0
        """Where the next frame goes."""
        self._held: deque[tuple[int, int, int]] = deque()
        """Frames that somebody may still have to take: their number, and where they begin and end."""

    def fits(self, size: int) -> bool:
        return size + 2 * _HEAD <= self.room // 2

    def write(self, data: bytes, is_anybody_there: Callable[[], bool]) -> None:
        """For all readers. Waits for the slowest where the ring is full, as long as `is_anybody_there`."""
        frames, size = self._memory.frames, len(data) + _HEAD
        count = self._count + 1
        number = count & _WRAP
        if self._next + size + _HEAD > self.room:
            if not self._wait_for_room(self._next, self.room, is_anybody_there):
                return
            frames[self._next : self._next + 4] = _WRAP.to_bytes(4, "little")
            self._held.append((count, self._next, self._next + 4))  # who has not taken the frame needs this to find it
            self._next = 0
        start, end = self._next, self._next + size
        if not self._wait_for_room(start, end + _HEAD, is_anybody_there):
            return
        frames[start + _HEAD : end] = data
        frames[start : start + _HEAD] = len(data).to_bytes(4, "little") + crc32(data, number).to_bytes(4, "little")
        self._count = count
        self._held.append((count, start, end))
        self._next = end
        self._memory.written.value = number
        self._memory.wake()

    def close(self) -> None:
        """Readers that wait hear that nothing comes any more. Safe to call twice."""
        self._memory.is_closed.value = 1
        self._memory.wake()
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def _wait_for_room(self, start: int, end: int, is_anybody_there: Callable[[], bool]) -> bool:
        while any(start < held_end and held_start < end for _, held_start, held_end in self._forget_taken()):
            if not is_anybody_there():
                return False
            time.sleep(_FULL_SECONDS)
        return True

    def _forget_taken(self) -> deque[tuple[int, int, int]]:
        written = self._memory.written.value
        behind = max((written - taken.value) & _WRAP for taken in self._memory.taken)
        while self._held and self._held[0][0] <= self._count - behind:
            self._held.popleft()
        return self._held


class PlanReader:
    """The side of one of those that read."""

    def __init__(self, descriptor: int, readers: int, number: int, room: int = _ROOM) -> None:
        """The descriptor is closed."""
        self._memory = _Memory(descriptor, readers, room)
        os.close(descriptor)
        self._taken = self._memory.taken[number]
        self._room = room
        self._next = 0

    def read(self) -> bytes | None:
        """The next frame, as soon as it is there; None where there will be none."""
        memory, taken = self._memory, self._taken.value
        while memory.written.value == taken:
            if memory.is_closed.value:
                return None
            memory.wait(taken)
        number = (taken + 1) & _WRAP
        data = self._frame(number)
        self._taken.value = number
        return data

    def _frame(self, number: int) -> bytes:
        """Processors other than x86 may show that there is a frame before they show all of it: its sum tells, into
        which its number goes, as an older frame may have been at the same place."""
        deadline = 0.0
        while True:
            place, length = self._next, self._word(self._next)
            if length == _WRAP:
                place, length = 0, self._word(0)
            start = place + _HEAD
            if start + length <= self._room:
                data = bytes(self._memory.frames[start : start + length])
                if crc32(data, number) == self._word(place + 4):
                    self._next = start + length
                    return data
            deadline = deadline or time.monotonic() + _TORN_SECONDS
            if time.monotonic() > deadline:
                raise RuntimeError("a frame of the ring of plans is damaged")

    def _word(self, place: int) -> int:
        return int.from_bytes(self._memory.frames[place : place + 4], "little")
