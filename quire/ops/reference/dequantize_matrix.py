"""What a QuantizedMatrix means: its numbers, as floats."""

from dataclasses import replace

import torch
from torch import Tensor

from quire.ops.nibbles import unpack_nibbles
from quire.ops.quantized_matrix import QuantizedMatrix

NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334),
    *(-0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
"""What NF4's codes stand for: quantiles of the normal distribution, between -1 and 1."""
_SIGNED_4_BITS = 8


def dequantize_matrix(matrix: QuantizedMatrix) -> Tensor:
    """float32 [rows, columns]; column c is the one that x's column c multiplies."""
    scales = _spread(matrix.scales.float(), matrix)
    values = _numbers(matrix) * scales
    if matrix.order is None:
        return values
    unsorted = torch.empty_like(values)
    unsorted[:, matrix.order.long()] = values
    return unsorted


def dequantize_rows(matrix: QuantizedMatrix, ids: Tensor) -> Tensor:
    """The rows `ids` of it: float32 [..., columns]."""
    flat = ids.flatten()
    zeros = None if matrix.zeros is None else matrix.zeros[flat]
    some = replace(matrix, values=matrix.values[flat], scales=matrix.scales[flat], zeros=zeros)
    return dequantize_matrix(some).view(*ids.shape, matrix.columns)


def whole_numbers(matrix: QuantizedMatrix) -> Tensor:
    """Signed codes, zero points taken off, of int8 and int4: int16 [rows, columns], in the order they are held in."""
    codes = unpack_nibbles(matrix.values, matrix.chunk) if matrix.codes == "int4" else matrix.values
    numbers = codes.to(torch.int16)
    if matrix.zeros is not None:
        return numbers - _spread(matrix.zeros.to(torch.int16), matrix)
    return numbers - _SIGNED_4_BITS if matrix.codes == "int4" else numbers


def _numbers(matrix: QuantizedMatrix) -> Tensor:
    """Before they are scaled, in the order they are held in."""
    if matrix.codes in ("int8", "int4"):
        return whole_numbers(matrix).float()
    if matrix.codes == "nf4":
        table = torch.tensor(NF4, device=matrix.values.device)
        return table[unpack_nibbles(matrix.values, matrix.chunk).long()]
    return matrix.values.float()


def _spread(each: Tensor, matrix: QuantizedMatrix) -> Tensor:
    """[rows, groups] to [rows, columns]."""
    return each.repeat_interleave(matrix.group, dim=1)[:, : matrix.columns]
