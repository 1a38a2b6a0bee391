"""Coverage: which lines of quire an input reached that none before it did."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import quire

QUIRE = str(Path(quire.__file__).parent)


@dataclass(slots=True)
class Coverage:
    folder: str = QUIRE
    """Of the source files that are watched."""
    num_lines: int = 0
    _unseen: dict[CodeType, set[int]] = field(default_factory=dict)
    """Lines of functions that ran. One whose lines were all reached is watched no longer: most soon cost nothing."""

    @contextmanager
    def watch(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(before)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Callable[[FrameType, str, Any], Any] | None:
        code = frame.f_code
        if not code.co_filename.startswith(self.folder):
            return None
        if code not in self._unseen:
            self._unseen[code] = {line for *_, line in code.co_lines() if line is not None} - {code.co_firstlineno}
        return self._step if self._unseen[code] else None

    def _step(self, frame: FrameType, event: str, argument: Any) -> Callable[[FrameType, str, Any], Any]:
        unseen = self._unseen[frame.f_code]
        if event == "line" and frame.f_lineno in unseen:
            unseen.remove(frame.f_lineno)
            self.num_lines += 1
        return self._step
