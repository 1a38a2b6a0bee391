"""packed_linear: matmuls with matrices in the native core's layouts, side by side."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from quire.ops.cpu.matrix import PackedMatrix
from quire.ops.cpu.tape import Tape, TapeInput, TapeProgram, Value

if TYPE_CHECKING:
    from quire.ops.cpu import _core

_X, _Y = TapeInput("x"), TapeInput("y")


class PackedLinear:
    """x Wᵀ + b, where W is several matrices one below the other, each in its own layout."""

    def __init__(self, machine: "_core.Machine", matrices: Sequence[PackedMatrix]) -> None:
        self._machine = machine
        self._matrices = tuple(matrices)
        self._columns = matrices[0].columns
        self._rows = sum(matrix.rows for matrix in matrices)
        self._program: TapeProgram | None = None

    def multiply(self, x: Tensor) -> Tensor:
        """x Wᵀ + b for float32 x of [..., columns]."""
        flat = x.reshape(-1, self._columns).float().contiguous()
        output = torch.empty(flat.shape[0], self._rows)
        if flat.shape[0]:
            if self._program is None:
                self._program = self._record_alone()
            self._program.run(self._machine, flat.shape[0], {"x": flat, "y": output})
        return output.view(*x.shape[:-1], self._rows)

    def record(self, x: Value) -> Value:
        """The same as operations of the tape that `x` is on."""
        tape = x.tape
        result = tape.value(self._rows)
        column = 0
        for matrix in self._matrices:
            packed = tape.packed(x, matrix.layout, matrix.is_dense)
            part = Value(tape, result.register, column, (matrix.rows,))
            tape.record("linear", (packed,), part, together=True, matrix=matrix, from_=packed, to=part)
            column += matrix.rows
        return result

    def lookup(self, ids: Tensor) -> Tensor:
        """Rows by number, of a single matrix; IndexError for one that there is not."""
        matrix = self.only
        wanted = ids.long().contiguous()
        output = torch.empty((*ids.shape, matrix.columns))
        self._machine.matrix_rows(matrix.core, wanted.data_ptr(), wanted.numel(), output.data_ptr())
        return output

    @property
    def columns(self) -> int:
        return self._columns

    @property
    def matrices(self) -> tuple[PackedMatrix, ...]:
        """One below the other."""
        return self._matrices

    @property
    def only(self) -> PackedMatrix:
        """The one matrix it is, where rows are looked up."""
        (matrix,) = self._matrices
        return matrix

    def _record_alone(self) -> TapeProgram:
        tape = Tape()
        tape.give(self.record(tape.given(_X, self._columns)), _Y)
        return tape.finish()


def packed_linear(x: Tensor, weight: PackedLinear) -> Tensor:
    return weight.multiply(x)


def record_packed_linear(x: Value, weight: PackedLinear) -> Value:
    return weight.record(x)
