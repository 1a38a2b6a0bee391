"""Where the values of a program lie: registers, and an arena that they share one after the other."""

from collections.abc import Sequence

_ALIGNMENT = 64


class Register:
    """Room for one value, so many bytes for each row."""

    def __init__(self, number: int, row_bytes: int) -> None:
        self.number = number
        self.value_bytes = row_bytes
        self.row_bytes = -(-row_bytes // _ALIGNMENT) * _ALIGNMENT
        self.offset = -1
        """Bytes into an arena of one row, which `arrange` decides; -1 - i is input i."""
        self._bound = False
        self._first: int | None = None
        self._last = -1

    @property
    def is_bound(self) -> bool:
        """Whether it is a tensor of the run and needs no room."""
        return self._bound

    def bind(self, number: int) -> None:
        """It is input `number` of every run."""
        self.offset = -1 - number
        self._bound = True

    def used_at(self, step: int) -> None:
        """Steps come in order. Within a step rows run at different speeds, so it is the unit of being in use."""
        if self._first is None:
            self._first = step
        self._last = step

    def meets(self, other: "Register") -> bool:
        """Whether both are in use in some step."""
        if self._first is None or other._first is None:
            return False
        return self._first <= other._last and other._first <= self._last


def arrange(registers: Sequence[Register]) -> int:
    """Give every register the lowest place that no register it meets has; returns the bytes of a row of the arena."""
    placed: list[Register] = []
    for register in registers:
        if register.is_bound:
            continue
        neighbours = sorted((other for other in placed if register.meets(other)), key=lambda other: other.offset)
        offset = 0
        for other in neighbours:
            if offset + register.row_bytes <= other.offset:
                break
            offset = max(offset, other.offset + other.row_bytes)
        register.offset = offset
        placed.append(register)
    return max((register.offset + register.row_bytes for register in placed), default=0)
