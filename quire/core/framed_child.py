"""The parent's end of a process that answers one frame with one frame: started when needed, killed when it must be.

What strangers' input may do to such a process ends with it: it is given no environment to speak of, only where its
parent finds packages, and the next request starts another.
"""

import os
import select
import signal
import struct
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from quire.core.errors import Unavailable

_LENGTH = struct.Struct("<I")
# What Python and the clock need; who breaks out should not find the server's keys.
_ENVIRONMENT = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "TZ")


class ChildDied(Exception):
    """The child ended in the middle of a request, or had to be ended; `code` is its exit status."""

    def __init__(self, code: int) -> None:
        super().__init__(f"status {code}")
        self.code = code

    @property
    def ran_out_of_time(self) -> bool:
        """Of a processor, by its own timer, or of the parent's patience."""
        return self.code in (-signal.SIGPROF, -signal.SIGKILL)


class _Silent(Exception):
    """There is no answer, and there will be none."""


class FramedChild:
    """One child at a time, for one caller at a time."""

    def __init__(
        self,
        script: Path,
        arguments: Sequence[str],
        *,
        purpose: str,
        wall_seconds: float,
        greeting: Callable[[], bytes] | None = None,
    ) -> None:
        """`purpose` names it in errors. A child bounds its own processor time; `wall_seconds` catches what takes none.

        `greeting` makes a frame that every new child is given first, and does not answer.
        """
        self._command = [sys.executable, "-s", "-P", str(script), *arguments]
        self._purpose = purpose
        self._wall_seconds = wall_seconds
        self._greeting = greeting
        self.process: subprocess.Popen[bytes] | None = None
        self._end: Callable[[], int | None] = int

    def exchange(self, frame: bytes) -> bytes:
        """One request, one answer; raises ChildDied."""
        try:
            child = self._running()
            assert child.stdout is not None
            _write(child, frame)
            end = time.monotonic() + self._wall_seconds
            (size,) = _LENGTH.unpack(_read(child.stdout, _LENGTH.size, end))
            return _read(child.stdout, size, end)
        except (_Silent, BrokenPipeError):
            raise ChildDied(self.stop()) from None
        except BaseException:  # an interrupt here would leave half an answer for the next request
            self.stop()
            raise

    def stop(self) -> int:
        """End the child, if there is one, and give its exit status; the next use starts another."""
        self.process = None
        return self._end() or 0

    def _running(self) -> subprocess.Popen[bytes]:
        if self.process is not None and self.process.poll() is None:
            return self.process
        self.stop()
        greeting = None if self._greeting is None else self._greeting()
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if Path(path).is_absolute())
        try:
            child = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        except OSError as error:
            raise Unavailable(f"cannot start the process that {self._purpose}: {error}.") from error
        # Also runs when this object is collected and when the interpreter exits; once in all.
        self._end = weakref.finalize(self, _end, child)
        self.process = child
        if greeting is not None:
            _write(child, greeting)
        return child


def _write(child: subprocess.Popen[bytes], frame: bytes) -> None:
    assert child.stdin is not None
    child.stdin.write(_LENGTH.pack(len(frame)) + frame)
    child.stdin.flush()


def _end(child: subprocess.Popen[bytes]) -> int:
    """Make sure that a child is gone, and give its exit status."""
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):  # what could not be written any more no longer matters
                pipe.close()
    try:
        return child.wait(timeout=1.0 if child.poll() is None else None)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


def _read(pipe: IO[bytes], size: int, end: float) -> bytes:
    parts: list[bytes] = []
    descriptor = pipe.fileno()
    while size:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
        part = os.read(descriptor, size) if ready else b""
        if not part:
            raise _Silent
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
