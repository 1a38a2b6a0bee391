"""PackedMatrix: a matrix in a layout of the native core, packed from tensors as checkpoints store them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from quire.ops.cpu.layouts import (
    EXACT,
    FLOATS,
    IN_8_BITS,
    IN_FLOATS,
    MULTIPLIED,
    MatrixForm,
    core_matrix,
    is_converted,
    layout_of,
)
from quire.ops.reference.gguf.dequantize import dequantize

if TYPE_CHECKING:
    from quire.ops.cpu import _core

_FLOAT_SOURCE = 4


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows of a matrix as a checkpoint stores them: a plain tensor, or the bytes of a packed type."""

    kind: str
    data: Tensor
    rows: int

    @property
    def layout(self) -> int:
        return layout_of(self.kind)

    @property
    def is_converted(self) -> bool:
        """Whether its scales are multiplied, as float16 would not hold them well otherwise."""
        return is_converted(self.kind)


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """[rows, columns]. Holds on to the memory that the core reads."""

    core: "_core.Matrix"
    name: str
    """No other of the model has it."""
    form: MatrixForm
    data: Tensor
    bias: Tensor | None

    @property
    def layout(self) -> int:
        return self.form.layout

    @property
    def rows(self) -> int:
        return self.form.rows

    @property
    def columns(self) -> int:
        return self.form.columns

    @property
    def is_dense(self) -> bool:
        return self.layout in IN_FLOATS


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


def packed_form(parts: Sequence[StoredRows], columns: int) -> MatrixForm:
    """What `fill` makes of parts that are alike."""
    from quire.ops.cpu import _core

    rows, layout = sum(part.rows for part in parts), parts[0].layout
    size = _core.matrix_bytes(layout, rows, columns)
    return MatrixForm(layout, rows, columns, size, tuple(part.kind for part in parts))


def fill(machine: "_core.Machine", parts: Sequence[StoredRows], columns: int, data: Tensor) -> None:
    """Pack parts that are alike into `data`, zeroed bytes."""
    row = 0
    for part in parts:
        _fill_part(machine, part, columns, row, data)
        row += part.rows


def open_matrix(name: str, form: MatrixForm, data: Tensor, bias: Tensor | None) -> PackedMatrix:
    """The matrix whose packed bytes are `data`; the bias of its rows is read whenever it multiplies."""
    if bias is not None and (bias.dtype != torch.float32 or not bias.is_contiguous()):
        raise ValueError(f"the native core reads biases as contiguous float32, not {bias.dtype}")
    core = core_matrix(form, data.data_ptr(), 0 if bias is None else bias.data_ptr())
    return PackedMatrix(core, name, form, data, bias)


_ROWS_AT_ONCE = 1024


def _fill_part(machine: "_core.Machine", part: StoredRows, columns: int, first_row: int, data: Tensor) -> None:
    held = FLOATS.get(part.kind) or EXACT.get(part.kind) or MULTIPLIED.get(part.kind)
    if held is not None:
        source = held[1]
        stored = part.data.contiguous()
        machine.pack_rows(source, stored.data_ptr(), part.rows, columns, part.layout, first_row, data.data_ptr())
        return
    for start in range(0, part.rows, _ROWS_AT_ONCE):
        some = part.data[start : start + _ROWS_AT_ONCE]
        floats = (some if part.kind == IN_8_BITS else dequantize(some, part.kind, torch.float32)).contiguous()
        machine.pack_rows(
            _FLOAT_SOURCE, floats.data_ptr(), len(floats), columns, part.layout, first_row + start, data.data_ptr()
        )
