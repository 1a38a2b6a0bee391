"""Packing: turns tensors of a checkpoint into matrices of the native core, in memory or in a file that is shared."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from quire.ops.cpu.layouts import PANEL, MatrixForm
from quire.ops.cpu.matrix import StoredRows, fill, open_matrix, packed_form, runs_alike
from quire.ops.cpu.packed_cache import PackedCache
from quire.ops.cpu.packed_heads import PackedHeads
from quire.ops.cpu.packed_linear import PackedLinear

if TYPE_CHECKING:
    from quire.ops.cpu import _core

_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Packing:
    """How the weights of one model are packed, for which threads, and where they are kept."""

    machine: "_core.Machine"
    cache: PackedCache | None = None
    """Whoever loads the model opens it, and commits it after the last matrix."""

    def linear(self, name: str, parts: Sequence[StoredRows], columns: int, bias: Tensor | None) -> PackedLinear:
        """Rows of all parts in order, as few matrices as their types allow; no other of the model has this name."""
        matrices, row = [], 0
        for number, run in enumerate(runs_alike(parts)):
            place, form = f"{name}/{number}", packed_form(run, columns)
            data = self._packed(place, form, run)
            matrices.append(open_matrix(place, form, data, None if bias is None else bias[row : row + form.rows]))
            row += form.rows
        return PackedLinear(self.machine, matrices)

    def heads(self, name: str, matrices: Tensor) -> PackedHeads:
        """Floats [heads, rows, columns]: a matrix for each head; no other of the model has this name."""
        num_heads, size, columns = matrices.shape
        padded = torch.nn.functional.pad(matrices, (0, 0, 0, -size % PANEL)).flatten(0, 1)
        rows = StoredRows(str(padded.dtype).removeprefix("torch."), padded, len(padded))
        form = packed_form([rows], columns)
        stack = open_matrix(name, form, self._packed(name, form, [rows]), None)
        return PackedHeads(stack, num_heads, size)

    def _packed(self, name: str, form: MatrixForm, parts: Sequence[StoredRows]) -> Tensor:
        """The bytes of parts that are alike."""

        def pack() -> Tensor:
            data = _zeros(form.size)
            fill(self.machine, parts, form.columns, data)
            return data

        if self.cache is None:
            return pack()
        return torch.from_numpy(self.cache.matrix(name, form, lambda: pack().numpy()))


def _zeros(size: int) -> Tensor:
    """Zeroed bytes that begin at a cache line."""
    room = torch.zeros(size + _ALIGNMENT, dtype=torch.uint8)
    start = -room.data_ptr() % _ALIGNMENT
    return room[start : start + size]
