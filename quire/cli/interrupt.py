"""Ctrl-C as a question and not as an exception: a step of the engine is never torn in the middle."""

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
