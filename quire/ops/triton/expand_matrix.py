"""expand_matrix: the numbers that a QuantizedMatrix stands for, at the speed of memory."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.quantized_matrix import QuantizedMatrix
from quire.ops.reference.expand_matrix import expand_matrix as reference
from quire.ops.triton.matrix_planes import (
    RUN,
    can_be_read,
    codes_of,
    columns_of,
    group_scales,
    halves_of,
    load_codes,
    plane_arguments,
)
from quire.ops.triton.overlap import overlap, wait_for_inputs

_BLOCK_OUT = 4
_BLOCK = 512
"""Places: two runs of each row a thread."""


def expand_matrix(matrix: QuantizedMatrix, dtype: torch.dtype) -> Tensor:
    """[rows, columns] in the order of its columns, computed in float32 and rounded once."""
    if not can_be_read(matrix):
        return reference(matrix, dtype)
    result = torch.empty((matrix.rows, matrix.columns), dtype=dtype, device=matrix.values.device)
    places = matrix.columns // halves_of(matrix)
    grid = (triton.cdiv(matrix.rows, _BLOCK_OUT), triton.cdiv(places, _BLOCK))
    _expand[grid](
        result,
        matrix.rows,
        places,
        **plane_arguments(matrix),
        block_out=_BLOCK_OUT,
        block=_BLOCK,
        run=RUN,
        **overlap(result),
    )
    return result


@triton.jit
def _expand(
    result_at,
    out_size,
    places,
    values_at,
    high_at,
    scales_at,
    zeros_at,
    mins_at,
    super_scales_at,
    super_mins_at,
    table_at,
    raised,
    values_stride,
    groups,
    low_bits: tl.constexpr,
    high_bits: tl.constexpr,
    halves: tl.constexpr,
    chunk: tl.constexpr,
    group: tl.constexpr,
    too_much: tl.constexpr,
    in_words: tl.constexpr,
    signed: tl.constexpr,
    bits_of: tl.constexpr,
    moves_bytes: tl.constexpr,
    block_out: tl.constexpr,
    block: tl.constexpr,
    run: tl.constexpr,
    overlapped: tl.constexpr,
):
    """result[out, column] = (code - zero) * scale - min."""
    wait_for_inputs(overlapped)
    outputs = tl.program_id(0) * block_out + tl.arange(0, block_out)
    out_rows = tl.minimum(outputs, out_size - 1).to(tl.int64)[:, None]
    values_rows = values_at + out_rows * values_stride
    high_rows = values_at
    if high_bits > 0:
        high_rows = high_at + out_rows * (places * 2 * high_bits // 32)
    start = tl.program_id(1) * block
    data, high = load_codes(values_rows, high_rows, start, places, block, low_bits, high_bits, chunk, in_words, False)
    first = (start + tl.arange(0, block // run) * run)[None, :]
    place = start + tl.arange(0, block)
    to_rows = result_at + out_rows * (places * halves)
    mask = (outputs < out_size)[:, None] & (place < places)[None, :]
    for half in tl.static_range(halves):
        column = columns_of(first, half, halves, chunk)
        codes = codes_of(
            data,
            high,
            table_at,
            raised,
            half,
            block_out,
            block,
            low_bits,
            high_bits,
            chunk,
            in_words,
            signed,
            bits_of,
            moves_bytes,
        )
        weights = tl.reshape(codes, [block_out, block // run, run]) - too_much
        if zeros_at is not None:
            weights -= group_scales(zeros_at, None, out_rows, groups, column, first < places, group)[:, :, None]
        weights *= group_scales(scales_at, super_scales_at, out_rows, groups, column, first < places, group)[:, :, None]
        if mins_at is not None:
            minimum = group_scales(mins_at, super_mins_at, out_rows, groups, column, first < places, group)
            weights -= minimum[:, :, None]
        to = to_rows + tl.max_contiguous(tl.multiple_of(columns_of(place, half, halves, chunk), run), run)[None, :]
        tl.store(to, tl.reshape(weights, [block_out, block]).to(result_at.dtype.element_ty), mask=mask)
