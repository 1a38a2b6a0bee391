"""From a QuantizedMatrix to rows that the native core packs, in the layout that loses least at the same bits.

Whole numbers in groups of a multiple of 32 columns fit the core's layouts as they are, but for scales, which become
float16: 4 bits with a minimum each group, or signed 8 bits. MXFP4 fits as it is. Everything else (FP8, NF4, other
groups, act-order) goes through floats to 8 bits with a scale for each 32 columns, as GGUF types without a layout of
their own do: it takes the bytes of FP8, and rounds finer than FP8, NF4 or 4 bits did.
"""

import torch
from torch import Tensor

from quire.ops.bit_planes import unpack_bits
from quire.ops.cpu.layouts import IN_8_BITS
from quire.ops.cpu.matrix import StoredRows
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.ops.reference.dequantize_matrix import dequantize_matrix, whole_numbers

_GROUP = 32
_SIGNED_4_BITS = 8
_LARGEST = 127
_LOST = 2**-10
"""The largest relative error of a scale in float16; scales out of its range have larger ones."""
_MANTISSA = 23
_ROWS_AT_ONCE = 2**16
"""Of MXFP4, whose stacks of experts are large: codes of a byte each take twice the memory of packed ones."""


def rows_for_core(matrix: QuantizedMatrix) -> StoredRows:
    """The rows in blocks of 32 columns, or in float32 to be rounded to 8 bits."""
    if _is_mxfp4(matrix):
        return StoredRows("MXFP4", _mxfp4_blocks(matrix), matrix.rows)
    if _fits(matrix):
        blocks = _q4_blocks(matrix) if matrix.codes == "int4" else _q8_blocks(matrix)
        if blocks is not None:
            return StoredRows(matrix.codes, blocks, matrix.rows)
    return StoredRows(IN_8_BITS, dequantize_matrix(matrix), matrix.rows)


def _is_mxfp4(matrix: QuantizedMatrix) -> bool:
    """Floats of 4 bits whose scales are powers of two: nothing but an exponent."""
    if matrix.codes != "fp4" or matrix.group != _GROUP or matrix.columns % _GROUP or matrix.order is not None:
        return False
    bits = matrix.scales.float().view(torch.int32)
    is_subnormal = bits == 1 << _MANTISSA - 1  # 2^-127, which the core's exponent 0 stands for as 0
    return bool(((bits >= 0) & (bits & (1 << _MANTISSA) - 1 == 0) | is_subnormal).all())


def _mxfp4_blocks(matrix: QuantizedMatrix) -> Tensor:
    """As ggml's MXFP4: the exponent, and 16 bytes of which byte i holds columns i and 16 + i."""
    exponents = (matrix.scales.float().view(torch.int32) >> _MANTISSA).to(torch.uint8)
    blocks = torch.empty((matrix.rows, matrix.columns // _GROUP, 1 + _GROUP // 2), dtype=torch.uint8)
    blocks[:, :, 0] = exponents
    for first in range(0, matrix.rows, _ROWS_AT_ONCE):
        some = slice(first, first + _ROWS_AT_ONCE)
        codes = unpack_bits(matrix.values[some], 4, matrix.chunk)
        low, high = codes.view(len(codes), -1, 2, _GROUP // 2).unbind(2)
        blocks[some, :, 1:] = low | high << 4
    return blocks.flatten(1)


def _fits(matrix: QuantizedMatrix) -> bool:
    in_blocks = matrix.columns % _GROUP == 0 and matrix.group % _GROUP == 0
    return in_blocks and matrix.order is None and matrix.codes in ("int4", "int8")


def _q4_blocks(matrix: QuantizedMatrix) -> Tensor | None:
    """As ggml's Q4_1: scale, minimum, and 16 bytes of which byte i holds columns i and 16 + i."""
    codes = unpack_bits(matrix.values, 4, matrix.chunk).view(matrix.rows, -1, 2, _GROUP // 2)
    zeros = torch.full_like(matrix.scales, _SIGNED_4_BITS) if matrix.zeros is None else matrix.zeros
    scales = _halves(matrix.scales.float(), matrix)
    minima = _halves(-zeros.float() * matrix.scales.float(), matrix)
    if scales is None or minima is None:
        return None
    packed = codes[:, :, 0] | codes[:, :, 1] << 4
    return torch.cat((scales, minima, packed), dim=2).flatten(1)


def _q8_blocks(matrix: QuantizedMatrix) -> Tensor | None:
    """As ggml's Q8_0: scale, and 32 signed numbers."""
    scales = _halves(matrix.scales.float(), matrix)
    if scales is None:
        return None
    numbers = matrix.values if matrix.zeros is None else whole_numbers(matrix)
    if matrix.zeros is not None and int(numbers.abs().max()) > _LARGEST:
        return None
    blocks = numbers.to(torch.int8).view(torch.uint8).view(matrix.rows, -1, _GROUP)
    return torch.cat((scales, blocks), dim=2).flatten(1)


def _halves(each: Tensor, matrix: QuantizedMatrix) -> Tensor | None:
    """float16 of [rows, groups], multiplied as the core wants it, as bytes [rows, blocks, 2]; None: out of range."""
    from quire.ops.cpu import _core

    wanted = each * _core.float_scale
    halves = wanted.half()
    if not torch.allclose(halves.float(), wanted, rtol=_LOST, atol=0):
        return None
    blocks = matrix.columns // _GROUP
    spread = halves.repeat_interleave(matrix.group // _GROUP, dim=1)[:, :blocks].contiguous()
    return spread.view(torch.uint8).view(matrix.rows, blocks, 2)
