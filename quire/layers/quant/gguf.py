"""Weights in any ggml type: GPUs multiply by the common ones as they are packed; others are expanded for each use."""

import torch
from torch import Tensor, nn

from quire.core.quantized import multiplies_experts
from quire.layers.quant.base import LinearMethod, Weight
from quire.layers.quant.dense import DenseMethod
from quire.layers.quant.matrix_buffers import MatrixBuffers
from quire.layers.stored import StoredTensor
from quire.layers.weights import dense, place
from quire.ops.cut_matrix import stack_rows
from quire.ops.functional import linear
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.ops.reference.gguf.dequantize import dequantize
from quire.ops.reference.gguf.planes import KINDS, as_matrix
from quire.spec.matrix import MatrixSpec


class GgufPart(nn.Module):
    """One tensor: uint8 [rows, bytes per row], or plain numbers where the file has those."""

    data: Tensor

    def __init__(self, kind: str, shape: tuple[int, ...], data: Tensor) -> None:
        super().__init__()
        self._kind = kind
        self._shape = shape
        self._is_plain = tuple(data.shape) == shape
        self.register_buffer("data", data, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        values = self.data if self._is_plain else dequantize(self.data, self._kind, x.dtype).view(self._shape)
        return linear(x, values, None)

    def rows(self, ids: Tensor, dtype: torch.dtype) -> Tensor:
        if self._is_plain:
            return self.data[ids]
        return dequantize(self.data[ids.flatten()], self._kind, dtype).view(*ids.shape, self._shape[1])


class GgufWeight(Weight):
    """Parts that may be of different types; the dtype of what they are applied to decides what they expand to.

    Parts that are arranged in planes become one where neighbours are of the same type.
    """

    def __init__(
        self, matrix: MatrixSpec, dtype: torch.dtype, device: torch.device, pinned: bool, in_planes: bool
    ) -> None:
        super().__init__(matrix, dtype, device, pinned)
        self._in_planes = in_planes
        self._incoming: dict[int, StoredTensor] = {}
        """By place among the matrix's parts, until all have come."""
        self._parts = nn.ModuleList()

    def forward(self, x: Tensor) -> Tensor:
        assert len(self._parts), f"{self._matrix.name} was not loaded"
        outputs = [part(x) for part in self._parts]
        output: Tensor = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
        return output if self.bias is None else output + self.bias

    def rows(self, ids: Tensor) -> Tensor:
        (part,) = self._parts
        assert isinstance(part, GgufPart | MatrixBuffers)
        return part.rows(ids, self._dtype)

    def _take(self, number: int, rows: slice, stored: StoredTensor) -> None:
        self._incoming[number] = stored
        if len(self._incoming) < len(self._matrix.parts):
            return
        parts = [self._incoming.pop(each) for each in range(len(self._matrix.parts))]
        if self._matrix.experts:
            self._parts.append(self._held_stack(parts))
            return
        for run in _runs_alike(parts):
            if self._in_planes and run[0].is_quantized and run[0].kind in KINDS:
                matrices = [as_matrix(place(each.data, self._device), each.kind) for each in run]
                self._parts.append(MatrixBuffers(stack_rows(matrices), self._device, pinned=self._pinned))
            else:
                self._parts.extend(self._held(each) for each in run)

    def _held_stack(self, parts: list[StoredTensor]) -> GgufPart | MatrixBuffers:
        """Experts are multiplied by as one stack: in planes, or in plain numbers where a GPU's kernels cannot."""
        kind = parts[0].kind
        if kind in KINDS and all(each.is_quantized and each.kind == kind for each in parts):
            stack = stack_rows([as_matrix(place(each.data, self._device), kind) for each in parts])
            if not self._in_planes or multiplies_experts(stack.codes, stack.group, stack.columns):
                return MatrixBuffers(stack, self._device, pinned=self._pinned)
        values = torch.cat([place(dense(each, self._dtype), self._device) for each in parts])
        return GgufPart(kind, tuple(values.shape), place(values, self._device, pinned=self._pinned))

    def stack(self) -> Tensor | QuantizedMatrix:
        (part,) = self._parts
        assert isinstance(part, GgufPart | MatrixBuffers)
        return part.matrix() if isinstance(part, MatrixBuffers) else part.data

    def _held(self, stored: StoredTensor) -> GgufPart:
        data = stored.data if stored.is_quantized else dense(stored, self._dtype)
        return GgufPart(stored.kind, stored.shape, place(data.contiguous(), self._device, pinned=self._pinned))


def _runs_alike(parts: list[StoredTensor]) -> list[list[StoredTensor]]:
    """Neighbours of one type."""
    runs: list[list[StoredTensor]] = []
    for part in parts:
        if runs and runs[-1][0].kind == part.kind:
            runs[-1].append(part)
        else:
            runs.append([part])
    return runs


class GgufMethod(LinearMethod):
    """Nothing is expanded before it is used; tensors that are stored plain are held in `dtype`."""

    def __init__(self, dtype: torch.dtype, *, in_planes: bool = False) -> None:
        """`in_planes` is for GPUs: weights are arranged for kernels that multiply by them as they are packed."""
        self._dtype = dtype
        self._in_planes = in_planes

    def create(self, matrix: MatrixSpec, device: torch.device, *, pinned: bool = False) -> Weight:
        if matrix.is_taken_apart:
            return DenseMethod(self._dtype).create(matrix, device, pinned=pinned)
        return GgufWeight(matrix, self._dtype, device, pinned, self._in_planes)
