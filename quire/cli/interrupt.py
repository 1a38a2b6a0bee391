"""Ctrl-C as a flag instead of an exception: it never interrupts a step of the engine."""

import signal
from types import FrameType, TracebackType
from typing import Self


class Interrupt:
    """Inside its `with` block the first Ctrl-C sets `asked`; a second one is the usual KeyboardInterrupt."""

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> Self:
        self.asked = False
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
