"""From a QuantizedMatrix to rows that the native core packs, in the layout that loses least at the same bits.

Whole numbers in groups of a multiple of 32 columns fit the core's layouts as they are, but for scales, which become
float16: 4 bits with a minimum each group, or signed 8 bits. Everything else (FP8, NF4, other groups, act-order) goes
through floats to 8 bits with a scale for each 32 columns, as GGUF types without a layout of their own do: it takes the
bytes of FP8, and rounds finer than FP8, NF4 or 4 bits did.
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


def rows_for_core(matrix: QuantizedMatrix) -> StoredRows:
    """The rows in blocks of 32 columns, or in float32 to be rounded to 8 bits."""
    if _fits(matrix):
        blocks = _q4_blocks(matrix) if matrix.codes == "int4" else _q8_blocks(matrix)
        if blocks is not None:
            return StoredRows(matrix.codes, blocks, matrix.rows)
    return StoredRows(IN_8_BITS, dequantize_matrix(matrix), matrix.rows)


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
