"""Weights in the layouts of the native CPU core."""

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from quire.layers.quant.base import LinearMethod, UpWeight, Weight
from quire.layers.quant.incoming import IncomingPart
from quire.layers.quant.packed_up import PackedUpWeight
from quire.layers.stored import StoredTensor
from quire.layers.weights import ExpectedTensors, dense
from quire.ops.cpu.matrix import StoredRows
from quire.ops.cpu.packed_linear import PackedLinear
from quire.ops.cpu.packing import Packing
from quire.ops.cpu.quantized_rows import rows_for_core
from quire.ops.functional import packed_linear
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.ops.reference.dequantize_matrix import dequantize_matrix
from quire.spec.matrix import MatrixSpec
from quire.spec.quantization import WeightScheme

_HELD_AS_STORED = {torch.float32, torch.float16, torch.bfloat16}


class PackedWeight(Weight):
    """All parts of a matrix together, its bias included; they are packed when the last of them has come."""

    def __init__(self, matrix: MatrixSpec, packing: Packing, keep: bool, schemes: Mapping[str, WeightScheme]) -> None:
        super().__init__(matrix, torch.float32, torch.device("cpu"))
        self._packing = packing
        self._keep = keep
        self._incoming = {
            number: IncomingPart(matrix, part, schemes[part.name], partial(self._take_quantized, number))
            for number, part in enumerate(matrix.parts)
            if part.name in schemes
        }
        self._stored: dict[int, StoredRows] = {}
        self._packed: PackedLinear | None = None

    def forward(self, x: Tensor) -> Tensor:
        return packed_linear(x, self.packed)

    def rows(self, ids: Tensor) -> Tensor:
        return self.packed.lookup(ids)

    def stack(self) -> PackedLinear:
        return self.packed

    @property
    def packed(self) -> PackedLinear:
        assert self._packed is not None, f"{self._matrix.name} was not loaded"
        return self._packed

    def _expected_part(self, number: int, rows: slice) -> ExpectedTensors:
        incoming = self._incoming.get(number)
        return super()._expected_part(number, rows) if incoming is None else incoming.expected()

    def _take(self, number: int, rows: slice, stored: StoredTensor) -> None:
        self._take_rows(number, self._rows_of(stored))

    def _take_quantized(self, number: int, part: QuantizedMatrix) -> None:
        kept = rows_for_core(part) if self._keep else StoredRows("float32", dequantize_matrix(part), part.rows)
        self._take_rows(number, kept)

    def _take_rows(self, number: int, rows: StoredRows) -> None:
        self._stored[number] = rows
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

    def __init__(self, packing: Packing, *, keep: bool, schemes: Mapping[str, WeightScheme] | None = None) -> None:
        """`schemes` are those of quantized parts, by name."""
        self._packing = packing
        self._keep = keep
        self._schemes = schemes or {}

    def create(self, matrix: MatrixSpec, device: torch.device, *, pinned: bool = False) -> Weight:
        return PackedWeight(matrix, self._packing, self._keep, self._schemes)

    def create_up(self, matrix: MatrixSpec, device: torch.device, *, pinned: bool = False) -> UpWeight:
        return PackedUpWeight(matrix, self._packing, self._keep, self._schemes)
