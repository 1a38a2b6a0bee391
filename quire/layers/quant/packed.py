"""Weights in the layouts of the native CPU core."""

import torch
from torch import Tensor

from quire.layers.quant.base import LinearMethod, Weight
from quire.layers.stored import StoredTensor
from quire.layers.weights import dense
from quire.ops.cpu.matrix import StoredRows
from quire.ops.cpu.packed_linear import PackedLinear
from quire.ops.cpu.packing import Packing
from quire.ops.functional import packed_linear
from quire.spec.matrix import MatrixSpec

_HELD_AS_STORED = {torch.float32, torch.float16, torch.bfloat16}


class PackedWeight(Weight):
    """All parts of a matrix together, its bias included; they are packed when the last of them has come."""

    def __init__(self, matrix: MatrixSpec, packing: Packing, keep: bool) -> None:
        super().__init__(matrix, torch.float32, torch.device("cpu"))
        self._packing = packing
        self._keep = keep
        self._stored: dict[int, StoredRows] = {}
        self._packed: PackedLinear | None = None

    def forward(self, x: Tensor) -> Tensor:
        return packed_linear(x, self.packed)

    def rows(self, ids: Tensor) -> Tensor:
        return self.packed.lookup(ids)

    @property
    def packed(self) -> PackedLinear:
        assert self._packed is not None, f"{self._matrix.name} was not loaded"
        return self._packed

    def _take(self, number: int, rows: slice, stored: StoredTensor) -> None:
        self._stored[number] = self._rows_of(stored)
        if len(self._stored) == len(self._matrix.parts):
            parts = [self._stored.pop(place) for place in range(len(self._matrix.parts))]
            # the bias may come later: the packed weight reads it where it is
            self._packed = self._packing.linear(self._matrix.name, parts, self._matrix.columns, self.bias)

    def _rows_of(self, stored: StoredTensor) -> StoredRows:
        """The tensor as the core packs it."""
        if stored.is_quantized and self._keep:
            return StoredRows(stored.kind, stored.data, stored.shape[0])
        keep = not stored.is_quantized and self._keep and stored.data.dtype in _HELD_AS_STORED
        values = stored.data if keep else dense(stored, torch.float32)
        return StoredRows(str(values.dtype).removeprefix("torch."), values, values.shape[0])


class PackedMethod(LinearMethod):
    """Every matrix in its own numbers or, where they are not kept, in float32."""

    def __init__(self, packing: Packing, *, keep: bool) -> None:
        self._packing = packing
        self._keep = keep

    def create(self, matrix: MatrixSpec, device: torch.device, *, pinned: bool = False) -> Weight:
        return PackedWeight(matrix, self._packing, self._keep)
