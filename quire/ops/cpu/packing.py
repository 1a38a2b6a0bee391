"""Packing: turns tensors of a checkpoint into matrices of the native core, in memory or in a file that is shared."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from quire.ops.cpu.matrix import StoredRows, fill, open_matrix, packed_bytes, runs_alike
from quire.ops.cpu.packed_cache import PackedCache
from quire.ops.cpu.packed_file import MatrixForm
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
            data = self._packed(f"{name}/{number}", run, columns)
            rows = sum(part.rows for part in run)
            matrices.append(open_matrix(run, columns, data, None if bias is None else bias[row : row + rows]))
            row += rows
        return PackedLinear(self.machine, matrices)

    def _packed(self, name: str, parts: Sequence[StoredRows], columns: int) -> Tensor:
        """The bytes of parts that are alike."""
        size = packed_bytes(parts, columns)

        def pack() -> Tensor:
            data = _zeros(size)
            fill(self.machine, parts, columns, data)
            return data

        if self.cache is None:
            return pack()
        rows = sum(part.rows for part in parts)
        form = MatrixForm(parts[0].layout, rows, columns, size, tuple(part.kind for part in parts))
        return self.cache.matrix(name, form, pack)


def _zeros(size: int) -> Tensor:
    """Zeroed bytes that begin at a cache line."""
    room = torch.zeros(size + _ALIGNMENT, dtype=torch.uint8)
    start = -room.data_ptr() % _ALIGNMENT
    return room[start : start + size]
