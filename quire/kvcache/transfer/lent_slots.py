"""LentSlots: numbers under which a sender lends something to the other end of a connection until that has taken it."""

import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Lock

from quire.kvcache.transfer.carrier import STALLED_SECONDS
from quire.kvcache.transfer.wire import TransferRefused


class LentSlots:
    """Few numbers, so that little is lent at a time. Filled by one thread, taken by another."""

    def __init__(self, count: int) -> None:
        self._free: SimpleQueue[int] = SimpleQueue()
        """-1: the connection is over."""
        for number in range(count):
            self._free.put(number)
        self._lent: dict[int, Sequence[int]] = {}
        self._moved = time.monotonic()
        self._is_over = False
        self._lock = Lock()

    def __len__(self) -> int:
        """What is lent now."""
        return len(self._lent)

    def next(self, rest: Callable[[], float]) -> int:
        """A number that is free, perhaps after a while in which `rest` is called; raises EOFError at the end."""
        while True:
            try:
                number = self._free.get(timeout=rest())
            except Empty:
                continue
            if number < 0:
                raise EOFError
            return number

    def lend(self, number: int, blocks: Sequence[int]) -> None:
        """Raises EOFError at the end."""
        with self._lock:
            if self._is_over:
                raise EOFError
            self._lent[number] = blocks
            self._moved = time.monotonic()

    def taken(self, number: int) -> Sequence[int]:
        with self._lock:
            blocks = self._lent.pop(number, None)
            self._moved = time.monotonic()
        if blocks is None:
            raise TransferRefused(f"slot {number}, which it has taken, was not lent to it")
        self._free.put(number)
        return blocks

    def check_patience(self) -> None:
        """Raises TransferRefused where what is lent has been for too long."""
        if self._lent and time.monotonic() - self._moved > STALLED_SECONDS:
            raise TransferRefused(f"it has taken nothing for {STALLED_SECONDS:.0f} s")

    def end(self) -> list[int]:
        """Whatever is lent comes back, and whoever waits for a number waits no more."""
        with self._lock:
            self._is_over = True
            blocks = [block for lent in self._lent.values() for block in lent]
            self._lent.clear()
        self._free.put(-1)
        return blocks
