"""What a QuantizedMatrix means to those who know nothing of its arrangement: floats in the order of x's columns."""

import torch
from torch import Tensor

from quire.ops.bit_planes import unpack_bits
from quire.ops.cut_matrix import cut_rows
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.ops.reference.expand_matrix import expand_matrix


def dequantize_matrix(matrix: QuantizedMatrix) -> Tensor:
    """float32 [rows, columns]; column c is the one that x's column c multiplies."""
    values = expand_matrix(matrix, torch.float32)
    if matrix.order is None:
        return values
    unsorted = torch.empty_like(values)
    unsorted[:, matrix.order.long()] = values
    return unsorted


def dequantize_rows(matrix: QuantizedMatrix, ids: Tensor) -> Tensor:
    """The rows `ids` of it: float32 [..., columns]."""
    return dequantize_matrix(cut_rows(matrix, ids.flatten())).view(*ids.shape, matrix.columns)


def whole_numbers(matrix: QuantizedMatrix) -> Tensor:
    """Signed codes, zero points taken off, of int8 and int4: int16 [rows, columns], in the order they are held in."""
    codes = unpack_bits(matrix.values, 4, matrix.chunk) if matrix.codes == "int4" else matrix.values
    numbers = codes.to(torch.int16) - matrix.less
    if matrix.zeros is None:
        return numbers
    return numbers - matrix.zeros.to(torch.int16).repeat_interleave(matrix.group, dim=1)[:, : matrix.columns]
