"""The parent's end of the process that renders chat templates: started when needed, killed when it takes too long."""

import os
import select
import signal
import struct
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import IO, Any

import msgspec

from quire.core.errors import InvalidRequest, QuireError

_LENGTH = struct.Struct("<I")
_CHILD = Path(__file__).with_name("template_child.py")
# What Python and the clock need; a template that broke out should not find the server's keys.
_ENVIRONMENT = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "TZ")
# The child counts its own processor time; this catches what takes none. Generous, for machines that are busy.
_WALL_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class TemplateLimits:
    """What rendering one conversation may cost."""

    cpu_seconds: float = 2.0
    memory_bytes: int = 1 << 30
    most_characters: int = 16_000_000
    most_source: int = 1_000_000
    """Characters of the template itself."""


class TemplateFailed(Exception):
    """The template did not give a text; `kind` is syntax, forbidden, refused, limit or failed."""

    def __init__(self, kind: str, message: str, line: int | None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.line = line


class _Died(Exception):
    """The child ended in the middle of a request."""


class TemplateProcess:
    """Renders templates in a process of its own. Threads may share it; they take turns."""

    def __init__(self, limits: TemplateLimits | None = None) -> None:
        self.limits = limits or TemplateLimits()
        self._lock = Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._end: Callable[[], int | None] = int

    def names(self, source: str) -> frozenset[str]:
        """The variables a template asks for; fails where it cannot be compiled."""
        return frozenset(self._ask(source, None)["names"])

    def render(self, source: str, variables: Mapping[str, object]) -> str:
        """The text of the template with these variables."""
        return str(self._ask(source, dict(variables))["text"])

    def close(self) -> None:
        """End the child, if there is one; the next use starts another."""
        with self._lock:
            self._stop()

    def _ask(self, source: str, variables: dict[str, object] | None) -> dict[str, Any]:
        limits = self.limits
        if len(source) > limits.most_source:
            too_long = f"it has {len(source):,} characters, {limits.most_source:,} are the most"
            raise TemplateFailed("limit", too_long, None)
        request: dict[str, object] = {
            "source": source,
            "variables": variables,
            "most_characters": limits.most_characters,
        }
        frame = _encoded(request)
        with self._lock:
            answer: dict[str, Any] = msgspec.msgpack.decode(self._exchange(frame))
        if "failure" in answer:
            raise TemplateFailed(answer["failure"], answer["message"], answer["line"])
        return answer

    def _exchange(self, frame: bytes) -> bytes:
        """One request, one answer; called with the lock held."""
        child = self._running()
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(_LENGTH.pack(len(frame)) + frame)
            child.stdin.flush()
            end = time.monotonic() + _WALL_SECONDS
            (size,) = _LENGTH.unpack(_read(child.stdout, _LENGTH.size, end))
            return _read(child.stdout, size, end)
        except (_Died, BrokenPipeError):
            code = self._stop()
            raise TemplateFailed("limit", self._reason(code), None) from None
        except BaseException:  # an interrupt here would leave half an answer for the next request
            self._stop()
            raise

    def _reason(self, code: int) -> str:
        if code in (-signal.SIGPROF, -signal.SIGKILL):
            return f"it takes more than {self.limits.cpu_seconds:g} seconds"
        return f"it ends the process that renders it (status {code}), {self.limits.memory_bytes:,} bytes being the most"

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is not None and self._child.poll() is None:
            return self._child
        self._stop()
        command = [sys.executable, "-I", str(_CHILD), str(self.limits.cpu_seconds), str(self.limits.memory_bytes)]
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        try:
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        except OSError as error:
            raise QuireError(f"cannot start the process that renders chat templates: {error}.") from error
        # Also runs when this object is collected and when the interpreter exits; once in all.
        self._end = weakref.finalize(self, _end, child)
        self._child = child
        return child

    def _stop(self) -> int:
        self._child = None
        return self._end() or 0


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
            raise _Died
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _encoded(request: dict[str, object]) -> bytes:
    try:
        return msgspec.msgpack.encode(request)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidRequest(
            f"the conversation holds something a template cannot be given ({error}); send plain JSON.", field="messages"
        ) from None
