"""PackedMatrix: a matrix in a layout of the native core, packed from tensors as checkpoints store them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from quire.ops.reference.gguf.dequantize import dequantize

if TYPE_CHECKING:
    from quire.ops.cpu import _core

Q4, Q8, F32, F16, BF16 = range(5)
"""Layouts, as csrc/layouts.hpp numbers them."""

_FLOATS = {"float32": (F32, 4), "float16": (F16, 5), "bfloat16": (BF16, 6)}
_EXACT = {"Q4_0": (Q4, 0), "Q4_1": (Q4, 1), "Q4_K": (Q4, 2), "Q8_0": (Q8, 3)}
"""Packed types that a layout holds as they are. All others go through floats to 8 bits, which are finer than theirs."""
_FLOAT_SOURCE = 4


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows of a matrix as a checkpoint stores them: a plain tensor, or the bytes of a packed type."""

    kind: str
    data: Tensor
    rows: int

    @property
    def layout(self) -> int:
        return (_FLOATS.get(self.kind) or _EXACT.get(self.kind) or (Q8, 0))[0]

    @property
    def is_converted(self) -> bool:
        """Whether its scales are multiplied, as float16 would not hold them well otherwise."""
        return self.kind not in _FLOATS and self.kind not in _EXACT


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """[rows, columns]. Holds on to the memory that the core reads."""

    core: "_core.Matrix"
    layout: int
    rows: int
    columns: int
    owners: tuple[object, ...]

    @property
    def is_dense(self) -> bool:
        return self.layout >= F32


def runs_alike(parts: Sequence[StoredRows]) -> list[list[StoredRows]]:
    """Neighbours that can be one matrix together."""
    runs: list[list[StoredRows]] = []
    for part in parts:
        last = runs[-1][-1] if runs else None
        if last is not None and (last.layout, last.is_converted) == (part.layout, part.is_converted):
            runs[-1].append(part)
        else:
            runs.append([part])
    return runs


def packed_bytes(parts: Sequence[StoredRows], columns: int) -> int:
    """Bytes that `fill` writes for parts that are alike."""
    from quire.ops.cpu import _core

    return _core.matrix_bytes(parts[0].layout, sum(part.rows for part in parts), columns)


def fill(machine: "_core.Machine", parts: Sequence[StoredRows], columns: int, data: Tensor) -> None:
    """Pack parts that are alike into `data`, zeroed bytes."""
    row = 0
    for part in parts:
        _fill_part(machine, part, columns, row, data)
        row += part.rows


def open_matrix(parts: Sequence[StoredRows], columns: int, data: Tensor, bias: Tensor | None) -> PackedMatrix:
    """The matrix whose packed bytes are `data`; the bias of its rows is read whenever it multiplies."""
    from quire.ops.cpu import _core

    if bias is not None and (bias.dtype != torch.float32 or not bias.is_contiguous()):
        raise ValueError(f"the native core reads biases as contiguous float32, not {bias.dtype}")
    rows, layout = sum(part.rows for part in parts), parts[0].layout
    factor = 1 / _core.float_scale if parts[0].is_converted else 1.0
    address = 0 if bias is None else bias.data_ptr()
    core = _core.Matrix(layout, data.data_ptr(), rows, columns, factor, address)
    return PackedMatrix(core, layout, rows, columns, (data, bias))


_ROWS_AT_ONCE = 1024


def _fill_part(machine: "_core.Machine", part: StoredRows, columns: int, first_row: int, data: Tensor) -> None:
    if not part.is_converted:
        source = (_FLOATS.get(part.kind) or _EXACT[part.kind])[1]
        stored = part.data.contiguous()
        machine.pack_rows(source, stored.data_ptr(), part.rows, columns, part.layout, first_row, data.data_ptr())
        return
    for start in range(0, part.rows, _ROWS_AT_ONCE):
        floats = dequantize(part.data[start : start + _ROWS_AT_ONCE], part.kind, torch.float32).contiguous()
        machine.pack_rows(
            _FLOAT_SOURCE, floats.data_ptr(), len(floats), columns, part.layout, first_row + start, data.data_ptr()
        )
