"""The parent's end of the processes that decode media: started when needed, killed when a file takes too long."""

import signal
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from queue import LifoQueue
from threading import Lock

import msgspec

from quire.core.errors import ConfigError
from quire.core.framed_child import ChildDied, FramedChild
from quire.multimodal.recipes import Cooked, Job, Spoiled

_CHILD = Path(__file__).with_name("media_child.py")
SIZE = 2
"""Files that are decoded at once."""
# Generous, for machines that are busy: the child counts its own processor time.
_WALL_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class DecoderLimits:
    """What decoding one file may cost."""

    cpu_seconds: float = 20.0
    memory_bytes: int = 3 << 30


class MediaFailed(Exception):
    """Nothing came of a file, and why."""


class _Answer(msgspec.Struct):
    cooked: Cooked | None = None
    spoiled: Spoiled | None = None


class DecoderPool:
    """Decodes in processes of their own, one for each thread that uses it at a time."""

    def __init__(self, limits: DecoderLimits | None = None) -> None:
        self.limits = limits or DecoderLimits()
        if find_spec("PIL") is None:
            raise ConfigError("images need Pillow; install quire[media].")
        # the one that was used last is used next: without a crowd the others are never started
        self._idle: LifoQueue[FramedChild] = LifoQueue()
        self._closing = Lock()
        arguments = (str(self.limits.cpu_seconds), str(self.limits.memory_bytes))
        for _ in range(SIZE):
            self._idle.put(FramedChild(_CHILD, arguments, purpose="decodes media", wall_seconds=_WALL_SECONDS))

    def cook(self, job: Job) -> Cooked:
        """Raises MediaFailed; waits while all children are busy."""
        child = self._idle.get()
        try:
            answer = msgspec.msgpack.decode(child.exchange(msgspec.msgpack.encode(job)), type=_Answer)
        except ChildDied as died:
            raise MediaFailed(self._reason(died.code)) from None
        except msgspec.DecodeError:
            child.stop()
            raise MediaFailed("the process that decodes it answered with nonsense") from None
        finally:
            self._idle.put(child)
        if answer.cooked is None:
            raise MediaFailed("it cannot be decoded" if answer.spoiled is None else answer.spoiled.message)
        return _checked(answer.cooked)

    def close(self) -> None:
        """End the children, each after what it decodes; the next use starts another."""
        with self._closing:
            children = [self._idle.get() for _ in range(SIZE)]
            for child in children:
                child.stop()
                self._idle.put(child)

    def _reason(self, code: int) -> str:
        if code in (-signal.SIGPROF, -signal.SIGKILL):
            return f"decoding it takes more than {self.limits.cpu_seconds:g} seconds"
        return f"it ends the process that decodes it (status {code}), {self.limits.memory_bytes:,} bytes being the most"


def _checked(cooked: Cooked) -> Cooked:
    """What a process says that a file may have taken over is believed as far as it adds up."""
    count, height, width, channels = cooked.shape
    if min(cooked.shape) < 1 or channels != 3 or len(cooked.data) != count * height * width * channels:
        raise MediaFailed("the process that decodes it answered with nonsense")
    return cooked
