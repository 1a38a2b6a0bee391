"""Board: figures that front processes tell each other without asking: a row of numbers each, in memory they share.

A front alone has a board of one row. Every number is eight aligned bytes that only its own front writes, so nothing is
locked and nobody reads half of one.
"""

import mmap
from enum import IntEnum
from pathlib import Path

_DOUBLE = 8


class Figure(IntEnum):
    """What a row holds."""

    WAITING_TOKENS = 0
    """Prompt tokens of requests that have not begun."""
    WAITING_WORK = 1
    """What those are expected to cost, answers included."""
    CONNECTIONS = 2


class Board:
    """One front's view: it writes its own row and reads the sums of all."""

    def __init__(self, memory: mmap.mmap | bytearray | None = None, number: int = 0) -> None:
        """`memory` has a row for every front; `number` is the place of this one."""
        self._numbers = memoryview(bytearray(_row_bytes()) if memory is None else memory).cast("B").cast("d")
        self._number = number

    @classmethod
    def create(cls, path: Path, fronts: int) -> "Board":
        """A board for so many fronts in a new file; whoever creates it has no row."""
        path.write_bytes(bytes(fronts * _row_bytes()))
        return cls.open(path, 0)

    @classmethod
    def open(cls, path: Path, number: int) -> "Board":
        """The board that another process created, for the front of this number."""
        with path.open("r+b") as file:
            return cls(mmap.mmap(file.fileno(), 0), number)

    def mine(self, figure: Figure) -> float:
        return self._numbers[self._number * len(Figure) + figure]

    def put(self, figure: Figure, value: float) -> None:
        self._numbers[self._number * len(Figure) + figure] = value

    def add(self, figure: Figure, amount: float) -> None:
        self.put(figure, self.mine(figure) + amount)

    def total(self, figure: Figure) -> float:
        """Of all fronts."""
        return sum(self._numbers[figure :: len(Figure)])

    def clear(self, number: int) -> None:
        """A front is gone, and what it had."""
        for figure in Figure:
            self._numbers[number * len(Figure) + figure] = 0.0


def _row_bytes() -> int:
    return len(Figure) * _DOUBLE
