"""quantized_linear: few rows are multiplied by codes as they are packed, many in 8 bits or by the expanded matrix."""

from torch import Tensor

from quire.ops.quantized_matrix import QuantizedMatrix
from quire.ops.triton.card import card_of
from quire.ops.triton.expand_matrix import expand_matrix
from quire.ops.triton.matrix_planes import can_be_read
from quire.ops.triton.quantized_skinny import multiply_by
from quire.ops.triton.quantized_skinny_choices import choose, form_of
from quire.ops.triton.scaled_gemm import can_multiply, multiply_quantized
from quire.ops.triton.skinny_gemm import linear
from quire.ops.triton.skinny_gemm_choices import Choice


def quantized_linear(x: Tensor, matrix: QuantizedMatrix, bias: Tensor | None) -> Tensor:
    """`x matrixᵀ + bias`. x: [..., columns], bias: [rows of the matrix]."""
    given = x.reshape(-1, matrix.columns)
    if matrix.order is not None:
        given = given.index_select(1, matrix.order)
    choice = _choice_for(given, matrix)
    y = multiply_many(given, matrix, bias) if choice is None else multiply_by(choice, given, matrix, bias)
    return y.view(*x.shape[:-1], matrix.rows)


def multiply_many(x: Tensor, matrix: QuantizedMatrix, bias: Tensor | None) -> Tensor:
    """The way of many rows: x is [rows, columns] in the matrix's order."""
    if x.shape[0] and can_multiply(matrix):
        return multiply_quantized(x, matrix, bias)
    return linear(x, expand_matrix(matrix, x.dtype), bias)


def _choice_for(x: Tensor, matrix: QuantizedMatrix) -> Choice | None:
    """Choices are for 16-bit numbers in plain rows."""
    if x.itemsize != 2 or x.stride(1) != 1 or not can_be_read(matrix):
        return None
    return choose(card_of(x.device), form_of(matrix, can_multiply(matrix)), x.shape[0], matrix.rows, matrix.columns)
