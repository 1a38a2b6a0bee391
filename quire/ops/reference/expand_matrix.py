"""expand_matrix: the numbers that a QuantizedMatrix stands for. The definition that kernels are compared with."""

import torch
from torch import Tensor

from quire.core.quantized import PLANES
from quire.ops.bit_planes import unpack_bits
from quire.ops.code_tables import TABLES
from quire.ops.quantized_matrix import SUPER_COLUMNS, QuantizedMatrix


def expand_matrix(matrix: QuantizedMatrix, dtype: torch.dtype) -> Tensor:
    """[rows, columns] in the order of its columns, computed in float32 and rounded once."""
    codes = _codes(matrix) - matrix.less
    scales = _of_columns(matrix, matrix.scales, matrix.super_scales)
    if matrix.mins is not None:
        return (codes * scales - _of_columns(matrix, matrix.mins, matrix.super_mins)).to(dtype)
    if matrix.zeros is not None:
        codes -= _of_columns(matrix, matrix.zeros, None)
    return (codes * scales).to(dtype)


def _codes(matrix: QuantizedMatrix) -> Tensor:
    low_bits, high_bits = PLANES[matrix.codes]
    if low_bits == 8:
        values = matrix.values
        return (values if matrix.zeros is None else values.view(torch.uint8)).float()
    codes = unpack_bits(matrix.values, low_bits, matrix.chunk)
    if matrix.high is not None:
        codes = codes | unpack_bits(matrix.high, high_bits, matrix.chunk) << low_bits
    if matrix.codes in TABLES:
        return torch.tensor(TABLES[matrix.codes], device=codes.device)[codes.long()].float()
    return codes.float()


def _of_columns(matrix: QuantizedMatrix, scales: Tensor, supers: Tensor | None) -> Tensor:
    """float32 [rows, columns]."""
    each = scales.float().repeat_interleave(matrix.group, dim=1)[:, : matrix.columns]
    if supers is None:
        return each
    return each * supers.float().repeat_interleave(SUPER_COLUMNS, dim=1)[:, : matrix.columns]
