"""Weights in a floating-point dtype that the device computes in; packed ones are expanded when they are loaded."""

import torch
from torch import Tensor

from quire.layers.quant.base import LinearMethod, Weight
from quire.layers.stored import StoredTensor
from quire.layers.weights import dense, place
from quire.ops.functional import batch_invariant_linear, linear
from quire.spec.matrix import MatrixSpec


class DenseWeight(Weight):
    """A plain matrix [rows, columns]: all parts are one, and one matmul does for all."""

    values: Tensor | None

    def __init__(
        self, matrix: MatrixSpec, dtype: torch.dtype, device: torch.device, pinned: bool, *, batch_invariant: bool
    ) -> None:
        super().__init__(matrix, dtype, device, pinned)
        self._multiply = batch_invariant_linear if batch_invariant else linear
        self.register_buffer("values", None, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self._multiply(x, self._loaded(), self.bias)

    def rows(self, ids: Tensor) -> Tensor:
        return self._loaded()[ids]

    def stack(self) -> Tensor:
        return self._loaded()

    def _loaded(self) -> Tensor:
        assert self.values is not None, f"{self._matrix.name} was not loaded"
        return self.values

    def _take(self, number: int, rows: slice, stored: StoredTensor) -> None:
        values = dense(stored, self._dtype)
        if len(self._matrix.parts) == 1:
            # where dtype and device are the file's, this is the mapped file itself, shared with other processes
            self.values = place(values.contiguous(), self._device, pinned=self._pinned)
            return
        if self.values is None:
            shape = (self._matrix.rows, self._matrix.columns)
            empty = torch.empty(shape, dtype=self._dtype, device=self._device)
            self.values = place(empty, self._device, pinned=self._pinned)
        self.values[rows].copy_(values)


class DenseMethod(LinearMethod):
    """Everything in one dtype."""

    def __init__(self, dtype: torch.dtype, *, batch_invariant: bool = False) -> None:
        self._dtype = dtype
        self._batch_invariant = batch_invariant

    def create(self, matrix: MatrixSpec, device: torch.device, *, pinned: bool = False) -> Weight:
        return DenseWeight(matrix, self._dtype, device, pinned, batch_invariant=self._batch_invariant)
