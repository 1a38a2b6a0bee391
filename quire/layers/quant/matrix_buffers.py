"""MatrixBuffers: a QuantizedMatrix whose tensors move with the model."""

from dataclasses import fields, replace

import torch
from torch import Tensor, nn

from quire.layers.weights import place
from quire.ops.functional import quantized_linear
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.ops.reference.dequantize_matrix import dequantize_rows


class MatrixBuffers(nn.Module):
    """Its planes are buffers under the names that the matrix has for them."""

    def __init__(self, matrix: QuantizedMatrix, device: torch.device, *, pinned: bool) -> None:
        super().__init__()
        self.count = matrix.rows
        tensors = {field.name: getattr(matrix, field.name) for field in fields(matrix)}
        self._planes = [name for name, value in tensors.items() if isinstance(value, Tensor)]
        for name in self._planes:
            self.register_buffer(name, place(tensors[name].contiguous(), device, pinned=pinned), persistent=False)
        # the sizes are asked of it, so it keeps the planes' meaning and none of their memory
        self._like = replace(matrix, **{name: tensors[name].new_empty(0) for name in self._planes})

    def matrix(self) -> QuantizedMatrix:
        """Of the buffers as they are now, wherever these have been moved."""
        return replace(self._like, **{name: getattr(self, name) for name in self._planes})

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        return quantized_linear(x, self.matrix(), bias)

    def rows(self, ids: Tensor, dtype: torch.dtype) -> Tensor:
        """Those rows in plain numbers: [..., columns]."""
        return dequantize_rows(self.matrix(), ids).to(dtype)
