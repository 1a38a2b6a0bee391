"""A file of weights in memory: its pages are read when a tensor's values are, and belong to the operating system."""

from math import prod
from mmap import ACCESS_COPY, mmap
from pathlib import Path

import torch
from torch import Tensor

from quire.core.errors import CheckpointError
from quire.models.loading.spans import TensorSpan

_PLAIN: dict[str, torch.dtype] = {
    name: getattr(torch, name)
    for name in (
        *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "complex64"),
        *("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool"),
    )
}
"""Kinds that torch computes with; all others are handed on as rows of bytes."""
_MOST_ELEMENTS = 2**63 - 1


class MappedFile:
    """Tensors of one file, without copies. The file stays mapped as long as any of them is alive.

    Pages are private: code that wrote to a tensor would change its own copy of a page, never the file.
    """

    def __init__(self, path: Path) -> None:
        self._source = str(path)
        try:
            with path.open("rb") as file:
                mapping = mmap(file.fileno(), 0, access=ACCESS_COPY)
        except (OSError, ValueError) as error:  # ValueError: the file is empty
            raise CheckpointError(f"cannot map {path} into memory: {error}.") from None
        self._bytes = torch.frombuffer(mapping, dtype=torch.uint8)

    def tensor(self, span: TensorSpan) -> Tensor:
        """The tensor at a span that the file's header gave: of its own dtype, or uint8 [rows, bytes of a row]."""
        where = f"{self._source}: tensor {span.name[:80]!r}"
        if not 0 <= span.start <= span.end <= len(self._bytes):
            raise CheckpointError(f"{where} is no longer inside the file, which has changed; open it again.")
        # With a size of 0 among them, sizes that no file could hold would pass every check of bytes.
        if prod(max(1, size) for size in span.shape) > _MOST_ELEMENTS:
            raise CheckpointError(f"{where} has shape {list(span.shape)}, which no memory could hold.")
        data = self._bytes[span.start : span.end]
        dtype = _PLAIN.get(span.dtype)
        if dtype is None:
            return self._rows(data, span)
        if span.start % dtype.itemsize:
            data = data.clone()  # safetensors promises no alignment, and torch views nothing that has none
        return data.view(dtype).view(span.shape)

    def _rows(self, data: Tensor, span: TensorSpan) -> Tensor:
        num_rows = prod(span.shape[:-1])
        if num_rows == 0:
            return data.view(0, 0)
        if len(data) % num_rows:
            raise CheckpointError(
                f"{self._source}: tensor {span.name[:80]!r} is {span.dtype} of shape {list(span.shape)}, whose rows "
                "do not end at whole bytes."
            )
        return data.view(num_rows, len(data) // num_rows)
