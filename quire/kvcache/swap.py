"""SwapSpace: blocks in host memory. A GPU reads and writes locked pages at full speed and beside its steps; they are
locked piece by piece as blocks are first used, since all at once it takes seconds, which a start need not wait for."""

import logging
import math
import weakref
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import torch
from torch import Tensor

from quire.ops.host_pages import give_back

PIECE = 16 << 20
"""Bytes that are locked at once, about: some milliseconds."""
PAGE = 4096
_log = logging.getLogger(__name__)

Lock = Callable[[int, int], bool]
"""Locks the pages of an address and a number of bytes; whether it could."""
Unlock = Callable[[int], object]


class SwapSpace:
    """[blocks, ...], zeroed. `lock` and `unlock` are the device's; without them pages stay as they are."""

    def __init__(
        self, shape: tuple[int, ...], dtype: torch.dtype, lock: Lock | None = None, unlock: Unlock | None = None
    ) -> None:
        size = math.prod(shape) * dtype.itemsize
        self.shape = shape
        self._room = zeroed_on_touch(size + PAGE)
        self._start = -self._room.data_ptr() % PAGE
        self._size = size
        self._piece = _whole_blocks(size // shape[0])
        self._blocks = self._room[self._start : self._start + size].view(dtype).view(shape)
        self._lock = lock
        self._seen: set[int] = set()
        self._unlock = unlock
        locked: list[int] = []
        self._locked = locked
        if unlock is not None:
            weakref.finalize(self, _unlock_all, locked, unlock, self._room)

    def block(self, index: int) -> Tensor:
        """One block, on locked pages where that is possible."""
        if self._lock is not None:
            piece = index * (self._size // self.shape[0]) // self._piece
            if piece not in self._seen:
                self._lock_piece(piece, self._lock)
        return self._blocks[index]

    def give_back(self) -> None:
        """Take no memory until blocks are used again; what they held is lost."""
        if self._unlock is not None:
            _unlock_all(self._locked, self._unlock, self._room)
            self._locked.clear()
            self._seen.clear()
        give_back(self._room.data_ptr(), self._room.nbytes)

    def _lock_piece(self, piece: int, lock: Lock) -> None:
        self._seen.add(piece)
        address = self._room.data_ptr() + self._start + piece * self._piece
        if lock(address, min(self._piece, self._size - piece * self._piece)):
            self._locked.append(address)
        else:
            _log.warning("the system locks no more memory for KV on the host: moves to and from it are slower")
            self._lock = None


def _whole_blocks(block_bytes: int) -> int:
    """Bytes of a piece: whole blocks, as no copy may touch two pieces, and whole pages, as those are what is locked."""
    smallest = math.lcm(block_bytes, PAGE)
    return max(1, PIECE // smallest) * smallest


def _unlock_all(locked: list[int], unlock: Unlock, room: Tensor) -> None:
    """`room` is held until all of it is unlocked."""
    for address in locked:
        unlock(address)


def zeroed_on_touch(size: int) -> Tensor:
    """Bytes on pages that the system zeroes when they are first touched: half a machine's memory is there at once, and
    costs nothing until it holds tokens (torch.zeros writes every byte)."""
    return torch.from_numpy(np.zeros(size, dtype=np.uint8))


def cuda_lock(address: int, size: int) -> bool:
    """Of the CUDA driver."""
    if int(torch.cuda.cudart().cudaHostRegister(address, size, 0)) == 0:  # type: ignore[no-untyped-call]
        return True
    with suppress(RuntimeError):  # the next kernel would report the driver's error as its own; this one takes it
        torch.empty(1, device="cuda").fill_(0)
    return False


def cuda_unlock(address: int) -> object:
    return torch.cuda.cudart().cudaHostUnregister(address)  # type: ignore[no-untyped-call]
