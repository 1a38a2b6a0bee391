"""The header of a .safetensors file: eight bytes of length, then JSON that names every tensor. No weight is read."""

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from quire.core.errors import CheckpointError
from quire.models.loading.json_object import MOST_JSON_BYTES, is_count, parse_json_object
from quire.models.loading.spans import TensorSpan, check_spans

_LENGTH_BYTES = 8
_MOST_DIMENSIONS = 16

# Name in the file → torch's name, bits an element.
_DTYPES: dict[str, tuple[str, int]] = {
    "F64": ("float64", 64),
    "F32": ("float32", 32),
    "F16": ("float16", 16),
    "BF16": ("bfloat16", 16),
    "F8_E4M3": ("float8_e4m3fn", 8),
    "F8_E5M2": ("float8_e5m2", 8),
    "F8_E8M0": ("float8_e8m0fnu", 8),
    "F6_E2M3": ("float6_e2m3", 6),
    "F6_E3M2": ("float6_e3m2", 6),
    "F4": ("float4_e2m1", 4),
    "C64": ("complex64", 64),
    "I64": ("int64", 64),
    "I32": ("int32", 32),
    "I16": ("int16", 16),
    "I8": ("int8", 8),
    "U64": ("uint64", 64),
    "U32": ("uint32", 32),
    "U16": ("uint16", 16),
    "U8": ("uint8", 8),
    "BOOL": ("bool", 8),
}


@dataclass(frozen=True, slots=True)
class SafetensorsHeader:
    """What a .safetensors file says it holds, every offset checked against the file."""

    tensors: tuple[TensorSpan, ...]
    metadata: dict[str, str]


@dataclass(frozen=True, slots=True)
class HeaderBytes:
    """A header as it lies in its file. What two that are equal say, each of its own file, is the same."""

    json: bytes
    file_size: int


def read_safetensors_header(path: Path) -> SafetensorsHeader:
    """Read and check the header of `path`."""
    return parse_safetensors_header(read_header_bytes(path), path)


def read_header_bytes(path: Path) -> HeaderBytes:
    """The header of `path`; nothing but its length is checked."""
    try:
        with path.open("rb") as file:
            file_size = file.seek(0, 2)
            file.seek(0)
            length = _header_length(file.read(_LENGTH_BYTES), file_size, path)
            return HeaderBytes(file.read(length), file_size)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}.") from None


def parse_safetensors_header(header: HeaderBytes, path: Path) -> SafetensorsHeader:
    """What the header of `path` says, checked."""
    entries = parse_json_object(header.json, f"the header of {path}")
    metadata = _metadata(entries.pop("__metadata__", {}), path)
    data_start = _LENGTH_BYTES + len(header.json)
    tensors = tuple(stored_tensor(name, entry, data_start, str(path)) for name, entry in entries.items())
    check_spans(tensors, header.file_size, str(path))
    return SafetensorsHeader(tensors, metadata)


def stored_tensor(name: str, entry: Any, data_start: int, source: str) -> TensorSpan:
    """One entry of a header, checked in itself: its type is known and its bytes are as many as its shape needs."""
    where = f"{source}: tensor {name[:80]!r}"
    if not isinstance(entry, dict):
        raise CheckpointError(f"{where} is described by a {type(entry).__name__}, but an object is expected.")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise CheckpointError(f"{where} has dtype {str(dtype)[:20]!r}; known are {', '.join(_DTYPES)}.")
    if not isinstance(shape, list) or len(shape) > _MOST_DIMENSIONS or not all(map(is_count, shape)):
        raise CheckpointError(f"{where} has no list of at most {_MOST_DIMENSIONS} sizes as its shape.")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(is_count, offsets)):
        raise CheckpointError(f"{where} has no pair of byte offsets as its data_offsets.")
    torch_name, bits = _DTYPES[dtype]
    start, end = offsets
    if prod(shape) * bits != (end - start) * 8:
        raise CheckpointError(
            f"{where} is {dtype} of shape {shape}, which takes {prod(shape) * bits // 8:,} bytes, but its offsets "
            f"span {end - start:,}; the file is damaged."
        )
    return TensorSpan(name, torch_name, tuple(shape), data_start + start, data_start + end)


def _header_length(prefix: bytes, file_size: int, path: Path) -> int:
    length = int.from_bytes(prefix, "little")
    room = file_size - _LENGTH_BYTES
    if len(prefix) < _LENGTH_BYTES or length > room:
        raise CheckpointError(
            f"{path} has {file_size:,} bytes, too few for the safetensors header it announces; "
            "it is cut short or no .safetensors file, download it again."
        )
    if length > MOST_JSON_BYTES:
        raise CheckpointError(
            f"{path} announces a header of {length:,} bytes, but the format allows {MOST_JSON_BYTES:,}; "
            "it is damaged or no .safetensors file."
        )
    return length


def _metadata(value: Any, path: Path) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise CheckpointError(f"{path}: __metadata__ must map names to text, but it is {type(value).__name__}.")
    return value
