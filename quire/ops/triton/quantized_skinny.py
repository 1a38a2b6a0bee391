"""x Wᵀ for few rows and a QuantizedMatrix: codes arrive at the speed of memory and become numbers in registers.

Three kernels multiply. CUDA cores put scales on the sums of a thread's run, of floats here and of whole numbers in
`quantized_skinny_bytes.py`. Tensor cores multiply by codes and scale the sums of a block where it lies in one group; of
smaller groups, the weights are scaled and rounded as if they had been expanded (`quantized_skinny_tensor.py`).
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.quantized_matrix import QuantizedMatrix
from quire.ops.triton.matrix_planes import (
    RUN,
    byte_arguments,
    codes_of,
    columns_of,
    halves_of,
    load_codes,
    load_where,
    pair_arguments,
    plane_arguments,
    run_numbers,
)
from quire.ops.triton.overlap import overlap, wait_for_inputs
from quire.ops.triton.quantized_skinny_bytes import multiply_bytes
from quire.ops.triton.quantized_skinny_choices import rows_of_a_block
from quire.ops.triton.quantized_skinny_tensor import at_the_end, multiply_on_tensor_cores
from quire.ops.triton.skinny_gemm_choices import MOST_ROWS_ON_CUDA_CORES, Choice, ceil_div
from quire.ops.triton.split_sums import add_splits
from quire.ops.triton.staged import launch_staged


def multiply_by(choice: Choice, x: Tensor, matrix: QuantizedMatrix, bias: Tensor | None) -> Tensor:
    """`x matrixᵀ + bias` in a given way. x: [rows, columns] in the matrix's order, whose rows may lie apart."""
    rows, out_size = x.shape[0], matrix.rows
    if choice.splits == 1:
        y = torch.empty((rows, out_size), dtype=x.dtype, device=x.device)
        _launch(choice, y, x, matrix, bias)
        return y
    sums = torch.empty((choice.splits, rows, out_size), dtype=torch.float32, device=x.device)
    _launch(choice, sums, x, matrix, None)
    return add_splits(sums, bias, x.dtype)


def _launch(choice: Choice, result: Tensor, x: Tensor, matrix: QuantizedMatrix, bias: Tensor | None) -> None:
    """Start the programs of a choice. result: [rows, out], or [splits, rows, out] in float32."""
    rows, halves = x.shape[0], halves_of(matrix)
    places, block = matrix.columns // halves, choice.block_in // halves
    grid = (ceil_div(matrix.rows, choice.block_out), choice.splits)
    as_bytes = choice.cores == "cuda" and matrix.codes.startswith("int")
    planes = byte_arguments(matrix) if as_bytes else plane_arguments(matrix, bytes_in_words=False)
    settings: dict[str, Any] = planes | {
        "places_a_split": ceil_div(ceil_div(places, block), choice.splits) * block,
        "one_scale": matrix.scales.shape[1] == 1 and matrix.zeros is None and matrix.mins is None,
        "block_out": choice.block_out,
        "block": block,
        "whole_blocks": places % block == 0,
        "stages": choice.num_stages,
        "num_warps": choice.num_warps,
        **overlap(x),
    }
    if choice.cores == "cuda":
        assert rows <= MOST_ROWS_ON_CUDA_CORES
        kernel = _multiply_floats
        settings |= {"known_rows": rows, "run": RUN}
        if as_bytes:
            kernel = multiply_bytes
            # scales of scales take so many registers that loads are under way anyway
            settings["loads_first"] = matrix.super_scales is None
    else:
        block_rows = rows_of_a_block(rows)
        grid = (grid[0] * ceil_div(rows, block_rows), choice.splits)
        kernel = multiply_on_tensor_cores
        settings |= pair_arguments(matrix, x.dtype, moves_bytes=settings["moves_bytes"]) | {"block_rows": block_rows}
        settings["widen"] = not x.is_cuda  # the interpreter holds bfloat16 as integers, and would multiply those
    arguments = (result, x, bias, x.stride(0), rows, matrix.rows, places)
    launch_staged(kernel, grid, arguments, settings, "stages")


@triton.jit(do_not_specialize=["rows"])
def _multiply_floats(
    result_at,
    x_at,
    bias_at,
    x_stride,
    rows,
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
    places_a_split,
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
    one_scale: tl.constexpr,
    known_rows: tl.constexpr,
    run: tl.constexpr,
    block_out: tl.constexpr,
    block: tl.constexpr,
    whole_blocks: tl.constexpr,
    stages: tl.constexpr,
    overlapped: tl.constexpr,
):
    """result[split, row, out] = Σ over runs of scale * Σ x * code, of the split's places.

    A thread loads a run of places of each output and sums their products by itself. Its running sums meet those of
    other threads once, after the loop.
    """
    outputs = tl.program_id(0) * block_out + tl.arange(0, block_out)
    split = tl.program_id(1)
    # past the last output its weights are read again: no load needs a mask for that, and no store takes the result
    out_rows = tl.minimum(outputs, out_size - 1).to(tl.int64)[:, None]
    values_rows = values_at + out_rows * values_stride
    high_rows = values_at if high_bits == 0 else high_at + out_rows * (places * 2 * high_bits // 32)
    begin = split * places_a_split
    end = tl.minimum(begin + places_a_split, places)
    both_halves: tl.constexpr = group >= chunk  # have one scale
    wait_for_inputs(overlapped, early=False)

    totals = ()
    for _ in tl.static_range(known_rows):
        totals += (tl.zeros([block_out, block // run], tl.float32),)  # type: ignore[assignment]
    for start in tl.range(begin, end, block, num_stages=stages):
        data, high = load_codes(
            values_rows, high_rows, start, end, block, low_bits, high_bits, chunk, in_words, whole_blocks
        )
        place = start + tl.arange(0, block)
        within = None if whole_blocks else place < end
        first = (start + tl.arange(0, block // run) * run)[:, None]
        has_run = None if whole_blocks else first < end
        codes, scale = (), ()
        for half in tl.static_range(halves):
            some = codes_of(
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
            codes += (some,)  # type: ignore[assignment]
            column = columns_of(first, 0 if both_halves else half, halves, chunk)
            scale += (run_numbers(scales_at, super_scales_at, out_rows, groups, column, has_run, group),)  # type: ignore[assignment]
        grown = ()
        for row in tl.static_range(known_rows):
            total = totals[row]  # type: ignore[var-annotated]
            part = tl.zeros([block_out, block // run], tl.float32)
            for half in tl.static_range(halves):
                # said outright, since a thread's codes and its x must be of the same run
                column = tl.max_contiguous(tl.multiple_of(columns_of(place, half, halves, chunk), run), run)
                x = load_where(x_at + row * x_stride + column, within).to(tl.float32)
                part += tl.sum(tl.reshape(codes[half] * x[None, :], [block_out, block // run, run]), axis=2)
                if half == halves - 1 or not both_halves:
                    total += part if one_scale else part * scale[half]
                    part = tl.zeros([block_out, block // run], tl.float32)
            grown += (total,)  # type: ignore[assignment]
        totals = grown

    is_output = outputs < out_size
    scale, added = at_the_end(scales_at, bias_at, outputs, is_output, one_scale)
    for row in tl.static_range(known_rows):
        result = tl.sum(totals[row], axis=1) * scale + added
        to = result_at + (split * known_rows + row) * out_size + outputs
        tl.store(to, result.to(result_at.dtype.element_ty), mask=is_output)
