"""Weights in any ggml type, held as they lie in the file and expanded for each use."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from quire.layers.quant.base import LinearMethod, Weight
from quire.layers.stored import StoredTensor
from quire.layers.weights import dense, place
from quire.ops.reference.gguf.dequantize import dequantize
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

    def values(self, dtype: torch.dtype) -> Tensor:
        return self.data if self._is_plain else dequantize(self.data, self._kind, dtype).view(self._shape)

    def rows(self, ids: Tensor) -> Tensor:
        if self._is_plain:
            return self.data[ids]
        return dequantize(self.data[ids.flatten()], self._kind).view(*ids.shape, self._shape[1])


class GgufWeight(Weight):
    """Parts that may be of different types; the dtype of what they are applied to decides what they expand to."""

    def __init__(self, matrix: MatrixSpec, dtype: torch.dtype, device: torch.device, pinned: bool) -> None:
        super().__init__(matrix, dtype, device, pinned)
        self._parts = nn.ModuleDict()
        """By place among the matrix's parts."""

    def forward(self, x: Tensor) -> Tensor:
        parts = [self._part(number) for number in range(len(self._matrix.parts))]
        outputs = [functional.linear(x, part.values(x.dtype)) for part in parts]
        output = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
        return output if self.bias is None else output + self.bias

    def rows(self, ids: Tensor) -> Tensor:
        return self._part(0).rows(ids)

    def _part(self, number: int) -> GgufPart:
        part = self._parts[str(number)]
        assert isinstance(part, GgufPart)
        return part

    def _take(self, number: int, rows: slice, stored: StoredTensor) -> None:
        data = stored.data if stored.is_quantized else dense(stored, self._dtype)
        held = place(data.contiguous(), self._device, pinned=self._pinned)
        self._parts[str(number)] = GgufPart(stored.kind, stored.shape, held)


class GgufMethod(LinearMethod):
    """Nothing is expanded before it is used; tensors that are stored plain are held in `dtype`."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    def create(self, matrix: MatrixSpec, device: torch.device, *, pinned: bool = False) -> Weight:
        return GgufWeight(matrix, self._dtype, device, pinned)
