"""AudioReader: from a file of sound to its spectrogram, in processes of their own that the kernel bounds."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from quire.core.child_pool import ChildPool
from quire.core.errors import InvalidRequest
from quire.core.framed_child import ChildDied
from quire.multimodal.spectrogram import Spectrogram

_CHILD = Path(__file__).with_name("audio_child.py")
_LEAST_SECONDS = 0.1
"""OpenAI's own; less is no word."""


@dataclass(frozen=True, slots=True)
class AudioLimits:
    """What one file may cost."""

    most_seconds: float = 3600.0
    cpu_seconds: float = 120.0
    wall_seconds: float = 600.0
    memory_bytes: int = 3 << 30
    at_once: int = 2
    """Files that are read at once; the others wait."""


class AudioReader:
    """Used by several threads at a time; each waits while all processes are busy."""

    def __init__(self, limits: AudioLimits | None = None) -> None:
        self.limits = limits = limits or AudioLimits()
        self._children = ChildPool(
            _CHILD,
            size=limits.at_once,
            purpose="reads files of sound",
            cpu_seconds=limits.cpu_seconds,
            memory_bytes=limits.memory_bytes,
            wall_seconds=limits.wall_seconds,
        )

    def read(
        self, data: bytes, num_bins: int, name: str = "the file", *, field: str = "file", fill: int = 0
    ) -> Spectrogram:
        """The spectrogram of a file's bytes; `name` is what errors call it, and `field` where it is in a body. Raises
        InvalidRequest. `fill` is as `audio_child` takes it."""
        request = {"data": data, "num_bins": num_bins, "most_seconds": self.limits.most_seconds, "fill": fill}
        found = self._exchange(msgspec.msgpack.encode(request), name, field)
        if "failure" in found:
            raise InvalidRequest(f"{name} {found['failure']}", field=field)
        if found["seconds"] < _LEAST_SECONDS:
            lasts = f"lasts {found['seconds']:g} seconds" if found["seconds"] else "holds no samples"
            raise InvalidRequest(f"{name} {lasts}; {_LEAST_SECONDS:g} seconds are the least", field=field)
        return Spectrogram(found["values"], num_bins, found["seconds"])

    def close(self) -> None:
        self._children.close()

    def _exchange(self, frame: bytes, name: str, field: str) -> dict[str, Any]:
        try:
            return self._children.exchange(frame, msgspec.msgpack.decode)
        except ChildDied as died:
            raise InvalidRequest(f"{name} {self._reason(died)}", field=field) from None

    def _reason(self, died: ChildDied) -> str:
        if died.ran_out_of_time:
            return f"takes more than {self.limits.cpu_seconds:g} seconds to decode"
        return f"ended the process that decodes it (status {died.code})"
