"""The header of a GGUF file: metadata and where each tensor lies, all of it checked. No weight is read.

Arrays (a vocabulary has a hundred thousand strings) are passed over and read only when asked for.
"""

import struct
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from mmap import ACCESS_READ, mmap
from pathlib import Path

from quire.core.errors import CheckpointError
from quire.core.ggml_types import ggml_type
from quire.models.loading.gguf_cursor import ARRAY, Cursor, Scalar
from quire.models.loading.spans import TensorSpan, check_spans

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MOST_DIMENSIONS = 4
_USUAL_ALIGNMENT = 32
# Least bytes an entry can take: a string's length and what must follow it.
_SMALLEST_METADATA = 8 + 4 + 1
_SMALLEST_TENSOR = 8 + 4 + 4 + 8


@dataclass(frozen=True, slots=True)
class GGUFArray:
    """An array of the metadata, still in its file."""

    path: Path
    element_type: int
    count: int
    start: int

    def read(self) -> list[object]:
        """All elements, read anew from the file."""
        with _mapped(self.path) as data:
            cursor = Cursor(data, str(self.path))
            cursor.skip(self.start)
            return cursor.elements(self.element_type, self.count)


Value = Scalar | GGUFArray


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    """What a GGUF file says it holds."""

    path: Path
    version: int
    metadata: dict[str, Value]
    tensors: tuple[TensorSpan, ...]


def read_gguf_header(path: Path) -> GGUFHeader:
    """Read and check the header of `path`; one that was just read is known as long as the file stays the same."""
    try:
        status = path.stat()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}.") from None
    return _read_header(path, (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))


@lru_cache(maxsize=4)
def _read_header(path: Path, _version_of_file: tuple[int, ...]) -> GGUFHeader:
    with _mapped(path) as data:
        cursor = Cursor(data, str(path))
        version = _version(cursor)
        num_tensors = cursor.count("tensors", _SMALLEST_TENSOR)
        num_values = cursor.count("metadata values", _SMALLEST_METADATA)
        metadata = _metadata(cursor, num_values, path)
        relative = _tensors(cursor, num_tensors)
        alignment = _alignment(cursor, metadata)
        data_start = -(-cursor.position // alignment) * alignment
        tensors = tuple(_placed(tensor, data_start, alignment, cursor) for tensor in relative)
        check_spans(tensors, cursor.size, str(path))
        return GGUFHeader(path, version, metadata, tensors)


def read_floats(header: GGUFHeader, span: TensorSpan, count: int) -> list[float]:
    """The values of a small float32 vector that must have `count` of them."""
    if span.dtype != "float32" or span.shape != (count,):
        raise CheckpointError(
            f"{header.path}: tensor {span.name!r} is {span.dtype} of shape {list(span.shape)}, but float32 of "
            f"[{count}] is expected; convert the model again."
        )
    with _mapped(header.path) as data:
        cursor = Cursor(data, str(header.path))
        cursor.skip(span.start)
        return list(struct.unpack_from(f"<{count}f", data, cursor.skip(span.num_bytes)))


def _mapped(path: Path) -> mmap:
    try:
        with path.open("rb") as file:
            if not file.seek(0, 2):
                raise CheckpointError(f"{path} is empty, but a GGUF file is expected; download it again.")
            return mmap(file.fileno(), 0, access=ACCESS_READ)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}.") from None


def _version(cursor: Cursor) -> int:
    start = cursor.skip(len(_MAGIC))
    if cursor.data[start : cursor.position] != _MAGIC:
        raise CheckpointError(f"{cursor.source} does not start with {_MAGIC.decode()}; it is no GGUF file.")
    version = cursor.u32()
    if version in _VERSIONS:
        return version
    if version % 2**16 == 0:
        raise CheckpointError(f"{cursor.source} is a big-endian GGUF file; quire reads little-endian ones, convert it.")
    raise CheckpointError(f"{cursor.source} is GGUF version {version}; quire reads versions 2 and 3, convert it.")


def _metadata(cursor: Cursor, count: int, path: Path) -> dict[str, Value]:
    metadata: dict[str, Value] = {}
    for _ in range(count):
        key = cursor.name()
        if key in metadata:
            cursor.fail(f"metadata key {key!r} appears twice")
        value_type = cursor.u32()
        metadata[key] = _array(cursor, path) if value_type == ARRAY else cursor.scalar(value_type)
    return metadata


def _array(cursor: Cursor, path: Path) -> GGUFArray:
    element_type, count = cursor.array_head()
    start = cursor.position
    cursor.skip_elements(element_type, count)
    return GGUFArray(path, element_type, count, start)


def _tensors(cursor: Cursor, count: int) -> list[TensorSpan]:
    """Tensors with offsets that are still relative to the data section."""
    tensors: dict[str, TensorSpan] = {}
    for _ in range(count):
        name = cursor.name()
        if name in tensors:
            cursor.fail(f"tensor {name!r} appears twice")
        num_dimensions = cursor.u32()
        if num_dimensions > _MOST_DIMENSIONS:
            cursor.fail(f"tensor {name!r} has {num_dimensions} dimensions where {_MOST_DIMENSIONS} are the most")
        dimensions = tuple(cursor.u64() for _ in range(num_dimensions))
        kind = ggml_type(cursor.u32(), name, cursor.source)
        offset = cursor.u64()
        row = dimensions[0] if dimensions else 1
        if row % kind.block:
            cursor.fail(f"tensor {name!r} has rows of {row} elements, but {kind.name} packs {kind.block} at a time")
        end = offset + kind.bytes_of(prod(dimensions))
        tensors[name] = TensorSpan(name, kind.name, dimensions[::-1], offset, end)
    return list(tensors.values())


def _alignment(cursor: Cursor, metadata: dict[str, Value]) -> int:
    alignment = metadata.get("general.alignment", _USUAL_ALIGNMENT)
    if not isinstance(alignment, int) or isinstance(alignment, bool) or alignment < 1 or alignment & (alignment - 1):
        cursor.fail(f"general.alignment is {alignment!r}, but it must be a power of two")
    return alignment


def _placed(tensor: TensorSpan, data_start: int, alignment: int, cursor: Cursor) -> TensorSpan:
    if tensor.start % alignment:
        cursor.fail(f"tensor {tensor.name!r} starts at {tensor.start:,}, which is no multiple of {alignment}")
    return TensorSpan(tensor.name, tensor.dtype, tensor.shape, data_start + tensor.start, data_start + tensor.end)
