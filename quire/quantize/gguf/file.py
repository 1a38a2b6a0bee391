"""GGUFFile: a GGUF file while it is written, which gets its name when it is whole.

Its header is known before any weight is, so a run that was killed goes on after the last whole tensor.
"""

import os
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

from torch import Tensor

from quire.core.errors import ConfigError
from quire.core.ggml_types import NUMBERS, ggml_type_named
from quire.quantize.gguf.values import text
from quire.quantize.safetensors_file import raw_bytes

_MAGIC = b"GGUF"
_VERSION = 3
_ALIGNMENT = 32


@dataclass(frozen=True, slots=True)
class PlannedTensor:
    """A tensor of the file, and what makes its bytes when it is its turn."""

    name: str
    kind: str
    """Torch's name of a dtype, or ggml's of a packed type."""
    shape: tuple[int, ...]
    """Outermost dimension first."""
    values: Callable[[], Tensor]

    @property
    def num_bytes(self) -> int:
        return ggml_type_named(self.kind).bytes_of(prod(self.shape))


class GGUFFile:
    """Metadata values are bytes with their type in front."""

    def __init__(self, out: Path, metadata: Mapping[str, bytes], tensors: Sequence[PlannedTensor]) -> None:
        self.partial = out.with_name(f"{out.name}.partial")
        self._out = out
        self._tensors = tensors
        self._header = _header(metadata, tensors)

    @property
    def num_bytes(self) -> int:
        return len(self._header) + sum(_aligned(tensor.num_bytes) for tensor in self._tensors)

    def write(self, progress: Callable[[int, int], None]) -> None:
        """Write what is missing, and give the file its name; `progress` is told how many tensors are done."""
        done, end = self._taken_up()
        with self.partial.open("r+b") as file:
            file.truncate(end)
            file.seek(end)
            for number, tensor in enumerate(self._tensors[done:], done + 1):
                data = raw_bytes(tensor.values())
                assert len(data) == tensor.num_bytes, tensor.name
                file.write(data)
                file.write(bytes(_aligned(len(data)) - len(data)))
                file.flush()
                progress(number, len(self._tensors))
            os.fsync(file.fileno())
        self.partial.replace(self._out)

    def _taken_up(self) -> tuple[int, int]:
        """How many tensors are there, and where the last of them ends."""
        if not self.partial.exists():
            self.partial.parent.mkdir(parents=True, exist_ok=True)
            self.partial.write_bytes(self._header)
        size = self.partial.stat().st_size
        with self.partial.open("rb") as file:
            before = file.read(len(self._header))
        if before != self._header[: len(before)]:
            raise ConfigError(
                f"{self.partial} is of a run that was stopped, of another model or scheme; ask for the same again, or "
                "remove the file."
            )
        if len(before) < len(self._header):
            self.partial.write_bytes(self._header)
            size = len(self._header)
        end = len(self._header)
        for count, tensor in enumerate(self._tensors):
            after = end + _aligned(tensor.num_bytes)
            if after > size:
                return count, end
            end = after
        return len(self._tensors), end


def _header(metadata: Mapping[str, bytes], tensors: Sequence[PlannedTensor]) -> bytes:
    parts = [_MAGIC, struct.pack("<IQQ", _VERSION, len(tensors), len(metadata))]
    parts += [text(key) + value for key, value in metadata.items()]
    offset = 0
    for tensor in tensors:
        sizes = tensor.shape[::-1]
        parts += [text(tensor.name), struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)]
        parts.append(struct.pack("<IQ", NUMBERS[tensor.kind], offset))
        offset += _aligned(tensor.num_bytes)
    joined = b"".join(parts)
    return joined + bytes(_aligned(len(joined)) - len(joined))


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
