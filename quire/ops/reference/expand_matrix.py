"""expand_matrix: the numbers that a QuantizedMatrix stands for. The definition that kernels are compared with."""

import torch
from torch import Tensor

from quire.ops.code_tables import TABLES
from quire.ops.quantized_matrix import PLANES, SUPER_COLUMNS, QuantizedMatrix


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
    codes = unpacked(matrix.values, low_bits, matrix.chunk)
    if matrix.high is not None:
        codes = codes | unpacked(matrix.high, high_bits, matrix.chunk) << low_bits
    if matrix.codes in TABLES:
        return torch.tensor(TABLES[matrix.codes], device=codes.device)[codes.long()].float()
    return codes.float()


def unpacked(plane: Tensor, bits: int, chunk: int) -> Tensor:
    """uint8 [rows, columns * bits / 8] to uint8 [rows, columns]."""
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=plane.device).view(1, 1, -1, 1)
    groups = plane.reshape(plane.shape[0], -1, 1, chunk * bits // 8)
    return (groups >> shifts & (1 << bits) - 1).view(plane.shape[0], -1)


def packed(codes: Tensor, bits: int, chunk: int) -> Tensor:
    """uint8 [rows, columns] to uint8 [rows, columns * bits / 8]: what `unpacked` undoes."""
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=codes.device).view(1, 1, -1, 1)
    fields = codes.reshape(codes.shape[0], -1, 8 // bits, chunk * bits // 8) << shifts
    return fields.sum(2, dtype=torch.uint8).view(codes.shape[0], -1)


def _of_columns(matrix: QuantizedMatrix, scales: Tensor, supers: Tensor | None) -> Tensor:
    """float32 [rows, columns]."""
    each = scales.float().repeat_interleave(matrix.group, dim=1)[:, : matrix.columns]
    if supers is None:
        return each
    return each * supers.float().repeat_interleave(SUPER_COLUMNS, dim=1)[:, : matrix.columns]
