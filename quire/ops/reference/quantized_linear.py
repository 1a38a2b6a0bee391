"""quantized_linear: the definition."""

from torch import Tensor
from torch.nn import functional

from quire.ops.quantized_matrix import QuantizedMatrix
from quire.ops.reference.expand_matrix import expand_matrix


def quantized_linear(x: Tensor, matrix: QuantizedMatrix, bias: Tensor | None) -> Tensor:
    """`x matrixᵀ + bias` with x as it is. x: [..., columns], bias: [rows of the matrix]."""
    given = x if matrix.order is None else x[..., matrix.order]
    return functional.linear(given, expand_matrix(matrix, x.dtype), bias)
