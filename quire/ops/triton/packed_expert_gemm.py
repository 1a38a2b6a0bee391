"""Many tokens' experts in 8 bits or fewer, multiplied as they are packed: in tiles of one expert on tensor cores.

Codes become numbers in registers, as for any matrix (`quantized_skinny_tensor.py`), and weights are the left operand. x
is taken as it is.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.triton.expert_gemm_choices import Strip, packed_strip
from quire.ops.triton.expert_stack import PackedStack
from quire.ops.triton.gated_activation import _gated
from quire.ops.triton.matrix_planes import (
    codes_of,
    columns_of,
    group_scales,
    halves_of,
    load_codes,
    load_where,
    spread,
)
from quire.ops.triton.overlap import overlap, wait_for_inputs
from quire.ops.triton.staged import launch_staged


def packed_multiply_up(
    block_rows: int,
    strip: Strip,
    x: Tensor,
    ids: Tensor,
    weights: Tensor | None,
    tiles: Tensor,
    up: PackedStack,
    experts: int,
    activation: str,
) -> Tensor:
    """As `multiply_up`."""
    size = up.rows // (2 * experts)
    inner = torch.empty((ids.numel(), size), dtype=x.dtype, device=x.device)
    settings = {"first_up": experts * size, "activation": activation, "top_k": ids.shape[1]}
    arguments = (inner, up.in_order(x), ids, weights, tiles, up.bias, size)
    _launch_tiles(block_rows, strip, up, arguments, settings)
    return inner


def packed_multiply_down(
    block_rows: int, strip: Strip, inner: Tensor, ids: Tensor, tiles: Tensor, down: PackedStack, hidden: int
) -> Tensor:
    """As `multiply_down`."""
    outputs = torch.empty((ids.numel(), hidden), dtype=inner.dtype, device=inner.device)
    settings = {"first_up": 0, "activation": "", "top_k": 1}
    arguments = (outputs, down.in_order(inner), ids, None, tiles, down.bias, hidden)
    _launch_tiles(block_rows, strip, down, arguments, settings)
    return outputs


def _launch_tiles(
    block_rows: int, strip: Strip, stack: PackedStack, arguments: tuple[Any, ...], settings: dict[str, Any]
) -> None:
    result, x, *_, tiles, _, out_size = arguments
    matrix = stack.matrix
    chosen = packed_strip(strip)
    settings = settings | stack.planes(bytes_in_words=False) | {
        "block_rows": block_rows,
        "block_out": chosen.block_out,
        "block": chosen.block_in // halves_of(matrix),
        "whole_blocks": matrix.columns % chosen.block_in == 0,
        "widen": not result.is_cuda,  # the interpreter holds bfloat16 as integers, and would multiply those
        "stages": chosen.num_stages,
        "num_warps": chosen.num_warps,
        **overlap(x),
    }  # fmt: skip
    grid = (triton.cdiv(out_size, chosen.block_out) * (tiles.numel() // block_rows),)
    launch_staged(_multiply, grid, arguments, settings, "stages")


@triton.jit
def _add_block(
    total,
    x,
    x_later,
    out_rows,
    start,
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
    whole_blocks: tl.constexpr,
):
    """`total` [out, rows] with the product of the places from `start` on; x is [places, rows] of first halves of
    chunks, `x_later` of second ones."""
    values_rows = values_at + out_rows * values_stride
    high_rows = values_at if high_bits == 0 else high_at + out_rows * (places * 2 * high_bits // 32)
    # where a block lies in one group, its sums are scaled, else its weights
    in_one_group: tl.constexpr = group % (block * halves) == 0 and mins_at is None
    both_halves: tl.constexpr = group >= chunk  # have one scale
    places_a_group: tl.constexpr = group // halves if both_halves else chunk // halves
    groups_here: tl.constexpr = 1 if in_one_group or places_a_group >= block else block // places_a_group
    data, high = load_codes(
        values_rows, high_rows, start, places, block, low_bits, high_bits, chunk, in_words, whole_blocks
    )
    group_place = (start + tl.arange(0, groups_here) * places_a_group)[None, :]
    has_group = None if whole_blocks else group_place < places
    part = tl.zeros(total.shape, tl.float32)
    for half in tl.static_range(halves):
        column = columns_of(group_place, 0 if both_halves else half, halves, chunk)
        less_here = too_much
        if zeros_at is not None:
            less_here = group_scales(zeros_at, None, out_rows, groups, column, has_group, group) + too_much
        scale = group_scales(scales_at, super_scales_at, out_rows, groups, column, has_group, group)
        weights = codes_of(
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
        if in_one_group:
            weights -= less_here
        else:
            offset = scale * less_here
            if mins_at is not None:
                offset += group_scales(mins_at, super_mins_at, out_rows, groups, column, has_group, group)
            scales = spread(scale, block_out, block)
            weights = weights * scales - spread(offset, block_out, block)
        given = x if half == 0 else x_later
        part = tl.dot(weights.to(given.dtype), given, part, input_precision="ieee")
    if in_one_group:
        part *= scale
    return total + part


@triton.jit
def _multiply(
    result_at,
    x_at,
    ids_at,
    weights_at,  # what inputs of pairs are multiplied by; None: nothing
    tiles_at,
    bias_at,
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
    first_up: tl.constexpr,
    activation: tl.constexpr,
    top_k: tl.constexpr,
    block_rows: tl.constexpr,
    block_out: tl.constexpr,
    block: tl.constexpr,
    whole_blocks: tl.constexpr,
    widen: tl.constexpr,
    stages: tl.constexpr,
    overlapped: tl.constexpr,
):
    """result[pair, out] = Σ x[pair // top_k, in] * weight[expert, out, in]; with `first_up`, gates and ups at once."""
    wait_for_inputs(overlapped, early=False)
    blocks = tl.cdiv(out_size, block_out)
    tile = tl.program_id(0) // blocks
    pair = tl.load(tiles_at + tile * block_rows + tl.arange(0, block_rows))
    chosen = tl.max(pair, axis=0)
    if chosen < 0:  # no expert has this tile
        return
    expert = tl.load(ids_at + chosen)
    is_row = (pair >= 0)[None, :]
    output = tl.program_id(0) % blocks * block_out + tl.arange(0, block_out)
    # past the last output its weights are read again, and no store takes the result
    row = (expert * out_size + tl.minimum(output, out_size - 1))[:, None]
    x_rows = x_at + (tl.maximum(pair, 0) // top_k).to(tl.int64)[None, :] * (places * halves)
    dot_type: tl.constexpr = tl.float32 if widen else x_at.dtype.element_ty

    total = tl.zeros([block_out, block_rows], tl.float32)
    total_up = tl.zeros([block_out, block_rows], tl.float32)
    for start in tl.range(0, places, block, num_stages=stages):
        place = start + tl.arange(0, block)
        mask = is_row if whole_blocks else is_row & (place < places)[:, None]
        column = tl.max_contiguous(tl.multiple_of(columns_of(place, 0, halves, chunk), 8), 8)[:, None]
        x = load_where(x_rows + column, mask).to(dot_type)
        x_later = x
        if halves == 2:
            column = tl.max_contiguous(tl.multiple_of(columns_of(place, 1, halves, chunk), 8), 8)[:, None]
            x_later = load_where(x_rows + column, mask).to(dot_type)
        total = _add_block(
            total, x, x_later, row, start, places, values_at, high_at, scales_at, zeros_at, mins_at, super_scales_at,
            super_mins_at, table_at, raised, values_stride, groups, low_bits, high_bits, halves, chunk, group, too_much,
            in_words, signed, bits_of, moves_bytes, block_out, block, whole_blocks,
        )  # fmt: skip
        if first_up:
            total_up = _add_block(
                total_up, x, x_later, row + first_up, start, places, values_at, high_at, scales_at, zeros_at, mins_at,
                super_scales_at, super_mins_at, table_at, raised, values_stride, groups, low_bits, high_bits, halves,
                chunk, group, too_much, in_words, signed, bits_of, moves_bytes, block_out, block, whole_blocks,
            )  # fmt: skip

    if weights_at is not None:
        share = tl.load(weights_at + pair[None, :], mask=is_row, other=0.0)
        total, total_up = total * share, total_up * share
    if bias_at is not None:
        total += tl.load(bias_at + row).to(tl.float32)
        if first_up:
            total_up += tl.load(bias_at + row + first_up).to(tl.float32)
    kind: tl.constexpr = result_at.dtype.element_ty
    result = total.to(kind)
    if first_up:  # rounded where the definition rounds
        result = _gated(result, total_up.to(kind), activation, kind).to(kind)
    to = result_at + pair.to(tl.int64)[None, :] * out_size + output[:, None]
    tl.store(to, result, mask=is_row & (output < out_size)[:, None])
