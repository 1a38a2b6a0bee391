"""The parent's end of the processes that decode media: started when needed, killed when a file takes too long."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import msgspec

from quire.core.child_pool import ChildPool
from quire.core.errors import ConfigError
from quire.core.framed_child import ChildDied
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


_READ = msgspec.msgpack.Decoder(_Answer).decode


class DecoderPool:
    """Decodes in processes of their own, one for each thread that uses it at a time."""

    def __init__(self, limits: DecoderLimits | None = None) -> None:
        self.limits = limits or DecoderLimits()
        if find_spec("PIL") is None:
            raise ConfigError("images need Pillow; install quire[media].")
        self._children = ChildPool(
            _CHILD,
            size=SIZE,
            purpose="decodes media",
            cpu_seconds=self.limits.cpu_seconds,
            memory_bytes=self.limits.memory_bytes,
            wall_seconds=_WALL_SECONDS,
        )

    def cook(self, job: Job) -> Cooked:
        """Raises MediaFailed; waits while all children are busy."""
        try:
            answer = self._children.exchange(msgspec.msgpack.encode(job), _READ)
        except ChildDied as died:
            raise MediaFailed(self._reason(died)) from None
        except msgspec.DecodeError:
            raise MediaFailed("the process that decodes it answered with nonsense") from None
        if answer.cooked is None:
            raise MediaFailed("it cannot be decoded" if answer.spoiled is None else answer.spoiled.message)
        return _checked(answer.cooked)

    def close(self) -> None:
        self._children.close()

    def _reason(self, died: ChildDied) -> str:
        if died.ran_out_of_time:
            return f"decoding it takes more than {self.limits.cpu_seconds:g} seconds"
        most = f"{self.limits.memory_bytes:,} bytes being the most"
        return f"it ends the process that decodes it (status {died.code}), {most}"


def _checked(cooked: Cooked) -> Cooked:
    """What a process says that a file may have taken over is believed as far as it adds up."""
    count, height, width, channels = cooked.shape
    if min(cooked.shape) < 1 or channels != 3 or len(cooked.data) != count * height * width * channels:
        raise MediaFailed("the process that decodes it answered with nonsense")
    return cooked
