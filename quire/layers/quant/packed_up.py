"""PackedUpWeight: what makes keys and values of latents, in the layouts of the native CPU core."""

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from quire.layers.quant.base import UpWeight
from quire.layers.quant.incoming import IncomingPart
from quire.layers.stored import StoredTensor
from quire.layers.weights import Expected, ExpectedTensors, dense
from quire.ops.cpu.layouts import FLOATS
from quire.ops.cpu.packed_heads import PackedUp
from quire.ops.cpu.packing import Packing
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.ops.reference.dequantize_matrix import dequantize_matrix
from quire.spec.matrix import MatrixSpec
from quire.spec.quantization import WeightScheme

_EXPANDED = torch.float16
"""Of numbers in 8 bits or fewer: the keys' matrices are turned, and groups of columns with a scale are not."""


class PackedUpWeight(UpWeight):
    """All parts together; they are packed when the last of them has come."""

    def __init__(self, matrix: MatrixSpec, packing: Packing, keep: bool, schemes: Mapping[str, WeightScheme]) -> None:
        super().__init__()
        self._matrix = matrix
        self._packing = packing
        self._keep = keep
        self._incoming = {
            number: IncomingPart(matrix, part, schemes[part.name], partial(self._take_quantized, number))
            for number, part in enumerate(matrix.parts)
            if part.name in schemes
        }
        self._rows: dict[int, Tensor] = {}
        self._packed: PackedUp | None = None

    def expected(self) -> ExpectedTensors:
        for number, part in enumerate(self._matrix.parts):
            if number in self._incoming:
                yield from self._incoming[number].expected()
            else:
                weight = self._matrix.weight(part)
                yield Expected(weight.name, weight.shape, partial(self._take, number))

    @property
    def values(self) -> PackedUp:
        assert self._packed is not None, f"{self._matrix.name} was not loaded"
        return self._packed

    def _take(self, number: int, stored: StoredTensor) -> None:
        held = stored.data.dtype if stored.kind in FLOATS else _EXPANDED
        self._take_rows(number, dense(stored, self._held_in(held)))

    def _take_quantized(self, number: int, part: QuantizedMatrix) -> None:
        self._take_rows(number, dequantize_matrix(part).to(self._held_in(_EXPANDED)))

    def _held_in(self, dtype: torch.dtype) -> torch.dtype:
        return dtype if self._keep else torch.float32

    def _take_rows(self, number: int, rows: Tensor) -> None:
        self._rows[number] = rows
        if len(self._rows) < len(self._matrix.parts):
            return
        heads, name = self._matrix.heads, self._matrix.name
        assert heads is not None, "it makes keys and values"
        rows = torch.cat([self._rows.pop(place) for place in range(len(self._matrix.parts))])
        keys, values = (
            part.view(heads.num_heads, -1, self._matrix.columns)
            for part in rows.tensor_split([heads.num_heads * heads.key])
        )
        self._packed = PackedUp(
            self._packing.heads(f"{name}/keys", keys.transpose(1, 2)), self._packing.heads(f"{name}/values", values)
        )
