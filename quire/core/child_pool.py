"""ChildPool: a few processes that answer frames, one for each thread that asks at a time."""

from collections.abc import Callable
from pathlib import Path
from queue import LifoQueue
from threading import Lock
from typing import TypeVar

from quire.core.framed_child import FramedChild

Answer = TypeVar("Answer")


class ChildPool:
    """They are started when they are needed; a caller waits while all are busy."""

    def __init__(
        self, script: Path, *, size: int, purpose: str, cpu_seconds: float, memory_bytes: int, wall_seconds: float
    ) -> None:
        """A child bounds itself by the two numbers it is given: seconds of a processor for one frame, and bytes."""
        self._size = size
        # the one that was used last is used next: without a crowd the others are never started
        self._idle: LifoQueue[FramedChild] = LifoQueue()
        self._closing = Lock()
        arguments = (str(cpu_seconds), str(memory_bytes))
        for _ in range(size):
            self._idle.put(FramedChild(script, arguments, purpose=purpose, wall_seconds=wall_seconds))

    def exchange(self, frame: bytes, read: Callable[[bytes], Answer]) -> Answer:
        """One request, one answer, as `read` understands it. Raises ChildDied, and what `read` raises: a child that
        cannot be understood may be another's by now, and ends."""
        child = self._idle.get()
        try:
            answer = child.exchange(frame)
            try:
                return read(answer)
            except Exception:
                child.stop()
                raise
        finally:
            self._idle.put(child)

    def close(self) -> None:
        """End the children, each after what it is doing; the next use starts another."""
        with self._closing:
            children = [self._idle.get() for _ in range(self._size)]
            for child in children:
                child.stop()
                self._idle.put(child)
