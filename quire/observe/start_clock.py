"""StartClock: where the time of a start goes, part by part."""

import time
from collections.abc import Callable, Mapping, Sequence

Parts = Sequence[tuple[str, float]]
"""Names and seconds, in order."""


class StartClock:
    """Runs from the moment it is made; every part ends where the next begins."""

    def __init__(self, began: float | None = None) -> None:
        """`began` is on the monotonic clock, for a start that is older than this."""
        self._began = time.monotonic() if began is None else began
        self._last = self._began
        self.parts: list[tuple[str, float]] = []
        self.on_waiting: Callable[[str], None] | None = None
        """Told again and again of what the start waits for that is not its own to do, such as other hosts."""

    @property
    def total(self) -> float:
        return time.monotonic() - self._began

    def done(self, part: str) -> None:
        """Everything since the last call was `part`."""
        now = time.monotonic()
        self.parts.append((part, now - self._last))
        self._last = now

    def waiting(self, what: str) -> None:
        """The start is not stuck: it waits for `what`."""
        if self.on_waiting is not None:
            self.on_waiting(what)

    def beside(self, part: str, seconds: float) -> None:
        """Something that ran meanwhile, and adds nothing to the whole."""
        self.parts.append((part, seconds))


def parts_table(columns: Mapping[str, Parts]) -> str:
    """Lines for a log: what ran at the same time stands side by side."""
    cells = [[title, *(f"{seconds:7.2f} s  {part}" for part, seconds in parts)] for title, parts in columns.items()]
    height = max(map(len, cells))
    filled = [column + [""] * (height - len(column)) for column in cells]
    widths = [max(map(len, column)) for column in filled]
    rows = zip(*filled, strict=True)
    return "\n".join(
        "  " + "    ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
