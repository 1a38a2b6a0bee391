"""What the header of a GGUF source says, carried over as it is: metadata, tokenizer, factors of rotary positions."""

from collections.abc import Sequence
from functools import partial
from mmap import ACCESS_READ, mmap

from quire.models.loading.gguf_cursor import ARRAY, Cursor
from quire.models.loading.gguf_header import GGUFHeader
from quire.models.loading.gguf_rope import FACTOR_TENSORS
from quire.models.loading.mapped_file import MappedFile
from quire.quantize.gguf.file import PlannedTensor

_BEFORE_COUNTS = 8
"""Bytes of magic and version."""
_DROPPED = ("split.", "general.alignment", "quantize.")
"""Keys that are true of the source's file alone."""


def carried_metadata(header: GGUFHeader) -> dict[str, bytes]:
    """Every value with its type in front, as the file has it."""
    found: dict[str, bytes] = {}
    with header.path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        cursor = Cursor(data, str(header.path))
        cursor.skip(_BEFORE_COUNTS)
        cursor.u64()
        for _ in range(cursor.u64()):
            key = cursor.name()
            start = cursor.position
            kind = cursor.u32()
            if kind == ARRAY:
                cursor.skip_elements(*cursor.array_head())
            else:
                cursor.scalar(kind)
            if not key.startswith(_DROPPED):
                found[key] = data[start : cursor.position]
    return found


def carried_factors(headers: Sequence[GGUFHeader]) -> list[PlannedTensor]:
    """Tensors that stretch frequencies; they are no weights of a spec."""
    found = []
    for header in headers:
        for span in header.tensors:
            if span.name in FACTOR_TENSORS:
                values = partial(MappedFile(header.path).tensor, span)
                found.append(PlannedTensor(span.name, "float32", span.shape, values))
    return found
