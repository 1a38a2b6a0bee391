"""Experts in 8 bits or fewer, multiplied as they are packed: codes become numbers in registers, as for any matrix.

Few tokens multiply pair by pair on CUDA cores, which scale the sums of a thread's run; more are grouped in tiles of one
expert for tensor cores, with weights as the left operand. x is taken as it is. See `quantized_skinny.py`.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.core.quantized import multiplies_experts
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.ops.triton.expert_gemm_choices import Strip, packed_strip
from quire.ops.triton.expert_stack import PackedStack
from quire.ops.triton.gated_activation import _gated
from quire.ops.triton.matrix_planes import (
    RUN,
    codes_of,
    columns_of,
    group_scales,
    halves_of,
    load_codes,
    load_where,
    plane_arguments,
    spread,
)
from quire.ops.triton.overlap import overlap, wait_for_inputs
from quire.ops.triton.staged import launch_staged

_NUMBERS = 8192
"""Weights that a program of a pair has under way at a time."""
_OUTPUTS = 8
"""Of such a program, of one expert; sums over several experts have half as many."""
_LEAST_COLUMNS = 128
"""What a program reads at a time of a row begins with a chunk, and so ends with one."""
_STAGES = 3


def packed_up_pairs(
    x: Tensor,
    ids: Tensor,
    weights: Tensor | None,
    up: PackedStack,
    experts: int,
    activation: str,
    *,
    some_elsewhere: bool = False,
) -> Tensor:
    """As `up_pairs`."""
    size = up.rows // (2 * experts)
    inner = torch.empty((ids.numel(), size), dtype=x.dtype, device=x.device)
    arguments = (inner, _ordered(x, up.matrix), ids, weights, up.bias, up.rows // 2)
    settings = _of_pairs(up.matrix, 2 * _OUTPUTS, x) | {
        "top_k": ids.shape[1],
        "size": size,
        "activation": activation,
        "some_elsewhere": some_elsewhere,
        "block_out": _OUTPUTS,
    }
    launch_staged(_up, (triton.cdiv(size, _OUTPUTS), ids.numel()), arguments, settings, "stages")
    return inner


def packed_down_pairs(
    inner: Tensor,
    ids: Tensor,
    weights: Tensor | None,
    down: PackedStack,
    hidden: int,
    *,
    some_elsewhere: bool = False,
) -> Tensor:
    """As `down_pairs`."""
    tokens, top_k = ids.shape
    y = torch.empty((tokens, hidden), dtype=inner.dtype, device=inner.device)
    ranks = triton.next_power_of_2(top_k)
    block_out = _OUTPUTS if ranks <= 2 else _OUTPUTS // 2
    arguments = (y, _ordered(inner, down.matrix), ids, weights, down.bias)
    settings = _of_pairs(down.matrix, ranks * block_out, inner) | {
        "top_k": top_k,
        "ranks": ranks,
        "hidden": hidden,
        "some_elsewhere": some_elsewhere,
        "block_out": block_out,
    }
    launch_staged(_down, (triton.cdiv(hidden, block_out), tokens), arguments, settings, "stages")
    return y


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
    arguments = (inner, _ordered(x, up.matrix), ids, weights, tiles, up.bias, size)
    _launch_tiles(block_rows, strip, up.matrix, arguments, settings)
    return inner


def packed_multiply_down(
    block_rows: int, strip: Strip, inner: Tensor, ids: Tensor, tiles: Tensor, down: PackedStack, hidden: int
) -> Tensor:
    """As `multiply_down`."""
    outputs = torch.empty((ids.numel(), hidden), dtype=inner.dtype, device=inner.device)
    settings = {"first_up": 0, "activation": "", "top_k": 1}
    arguments = (outputs, _ordered(inner, down.matrix), ids, None, tiles, down.bias, hidden)
    _launch_tiles(block_rows, strip, down.matrix, arguments, settings)
    return outputs


def _ordered(x: Tensor, matrix: QuantizedMatrix) -> Tensor:
    """x in the order of the matrix's columns."""
    return x if matrix.order is None else x.index_select(1, matrix.order)


def _planes(matrix: QuantizedMatrix, *, bytes_in_words: bool) -> dict[str, Any]:
    assert multiplies_experts(matrix.codes, matrix.group, matrix.columns), "such experts are expanded"
    planes = plane_arguments(matrix, bytes_in_words=bytes_in_words)
    return planes | {"places": matrix.columns // halves_of(matrix)}


def _of_pairs(matrix: QuantizedMatrix, rows: int, x: Tensor) -> dict[str, Any]:
    """Settings of a kernel whose programs read so many rows of a matrix."""
    halves = halves_of(matrix)
    columns = min(max(_NUMBERS // rows, _LEAST_COLUMNS), max(triton.next_power_of_2(matrix.columns), _LEAST_COLUMNS))
    block = columns // halves
    return _planes(matrix, bytes_in_words=True) | {
        "block": block,
        "run": RUN,
        "whole_blocks": matrix.columns % columns == 0,
        "stages": _STAGES,
        "num_warps": 4,
        **overlap(x),
    }


def _launch_tiles(
    block_rows: int, strip: Strip, matrix: QuantizedMatrix, arguments: tuple[Any, ...], settings: dict[str, Any]
) -> None:
    result, x, *_, tiles, _, out_size = arguments
    chosen = packed_strip(strip)
    settings = settings | _planes(matrix, bytes_in_words=False) | {
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
def _products(
    x_at,
    row,
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
    block: tl.constexpr,
    run: tl.constexpr,
    whole_blocks: tl.constexpr,
    stages: tl.constexpr,
):
    """Of each row with its x, in float32. row: int64 [rows], x_at: pointers [rows], or [1] where all have the same."""
    count: tl.constexpr = row.shape[0]
    out_rows = row[:, None]
    values_rows = values_at + out_rows * values_stride
    high_rows = values_at if high_bits == 0 else high_at + out_rows * (places * 2 * high_bits // 32)
    needs_sum: tl.constexpr = too_much > 0 or zeros_at is not None or mins_at is not None
    total = tl.zeros([count, block // run], tl.float32)
    for start in tl.range(0, places, block, num_stages=stages):
        data, high = load_codes(
            values_rows, high_rows, start, places, block, low_bits, high_bits, chunk, in_words, whole_blocks
        )
        place = start + tl.arange(0, block)
        within = None if whole_blocks else (place < places)[None, :]
        first = (start + tl.arange(0, block // run) * run)[None, :]
        has_run = None if whole_blocks else first < places
        for half in tl.static_range(halves):
            codes = codes_of(
                data,
                high,
                table_at,
                raised,
                half,
                count,
                block,
                low_bits,
                high_bits,
                chunk,
                in_words,
                signed,
                bits_of,
                moves_bytes,
            )
            column = tl.max_contiguous(tl.multiple_of(columns_of(place, half, halves, chunk), run), run)[None, :]
            x = load_where(x_at[:, None] + column, within).to(tl.float32)
            part = tl.sum(tl.reshape(codes * x, [count, block // run, run]), axis=2)
            column = columns_of(first, half, halves, chunk)
            scale = group_scales(scales_at, super_scales_at, out_rows, groups, column, has_run, group)
            if needs_sum:
                x_sum = tl.sum(tl.reshape(x, [x.shape[0], block // run, run]), axis=2)
                if zeros_at is None:
                    part -= x_sum * too_much
                else:
                    part -= x_sum * (group_scales(zeros_at, None, out_rows, groups, column, has_run, group) + too_much)
                part *= scale
                if mins_at is not None:
                    part -= x_sum * group_scales(mins_at, super_mins_at, out_rows, groups, column, has_run, group)
            else:
                part *= scale
            total += part
    return tl.sum(total, axis=1)


@triton.jit
def _up(
    inner_at,
    x_at,
    ids_at,
    weights_at,
    bias_at,
    first_up,
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
    top_k: tl.constexpr,
    size: tl.constexpr,
    activation: tl.constexpr,
    some_elsewhere: tl.constexpr,
    block_out: tl.constexpr,
    block: tl.constexpr,
    run: tl.constexpr,
    whole_blocks: tl.constexpr,
    stages: tl.constexpr,
    overlapped: tl.constexpr,
):
    """inner[pair, out] = activation(gate · x) * (up · x); rows of ups begin at `first_up`."""
    wait_for_inputs(overlapped, early=False)
    pair = tl.program_id(1)
    index = tl.arange(0, 2 * block_out)  # gates, then ups
    output = tl.program_id(0) * block_out + index % block_out
    expert = tl.load(ids_at + pair)
    if some_elsewhere:  # noqa: SIM102 - one is known to the compiler, the other is not
        if expert < 0:  # nobody reads this pair's
            return
    # past the last output its weights are read again, and no store takes the result
    row = expert * size + tl.minimum(output, size - 1) + index // block_out * first_up
    x_at += (pair // top_k) * (places * halves) + tl.arange(0, 1)
    both = _products(
        x_at, row, places, values_at, high_at, scales_at, zeros_at, mins_at, super_scales_at, super_mins_at, table_at,
        raised, values_stride, groups, low_bits, high_bits, halves, chunk, group, too_much, in_words, signed, bits_of,
        moves_bytes, block, run, whole_blocks, stages,
    )  # fmt: skip
    if weights_at is not None:
        both *= tl.load(weights_at + pair)
    if bias_at is not None:
        both += tl.load(bias_at + row).to(tl.float32)
    both = tl.reshape(both, [2, block_out])
    is_gate = tl.arange(0, 2)[:, None] == 0
    gate = tl.sum(tl.where(is_gate, both, 0.0), axis=0)
    up = tl.sum(tl.where(is_gate, 0.0, both), axis=0)
    output = tl.program_id(0) * block_out + tl.arange(0, block_out)
    kind: tl.constexpr = inner_at.dtype.element_ty
    gated = _gated(gate.to(kind), up.to(kind), activation, kind)
    tl.store(inner_at + pair * size + output, gated.to(kind), mask=output < size)


@triton.jit
def _down(
    y_at,
    inner_at,
    ids_at,
    weights_at,
    bias_at,
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
    top_k: tl.constexpr,
    ranks: tl.constexpr,  # top_k, made a power of two
    hidden: tl.constexpr,
    some_elsewhere: tl.constexpr,
    block_out: tl.constexpr,
    block: tl.constexpr,
    run: tl.constexpr,
    whole_blocks: tl.constexpr,
    stages: tl.constexpr,
    overlapped: tl.constexpr,
):
    """y[token, out] = Σ weight * (down · inner) over the token's experts, each rounded first."""
    wait_for_inputs(overlapped, early=False)
    token = tl.program_id(1)
    index = tl.arange(0, ranks * block_out)  # outputs of the first expert, of the next …
    rank = index // block_out
    # past the last expert its weights are read again, from the cache, and no sum takes the result
    pair = token * top_k + tl.minimum(rank, top_k - 1)
    output = tl.program_id(0) * block_out + index % block_out
    expert = tl.load(ids_at + pair)
    is_here = expert >= 0
    row = tl.maximum(expert, 0) * hidden + tl.minimum(output, hidden - 1)
    product = _products(
        inner_at + pair * (places * halves), row, places, values_at, high_at, scales_at, zeros_at, mins_at,
        super_scales_at, super_mins_at, table_at, raised, values_stride, groups, low_bits, high_bits, halves, chunk,
        group, too_much, in_words, signed, bits_of, moves_bytes, block, run, whole_blocks, stages,
    )  # fmt: skip
    if bias_at is not None:
        product += tl.load(bias_at + row).to(tl.float32)
    kind: tl.constexpr = y_at.dtype.element_ty
    product = product.to(kind).to(tl.float32)
    if weights_at is not None:
        product *= tl.load(weights_at + pair)
    if some_elsewhere:
        product = tl.where(is_here, product, 0.0)
    product = tl.reshape(product, [ranks, block_out])
    each_rank = tl.arange(0, ranks)[:, None]
    total = tl.zeros([block_out], tl.float32)
    for each in tl.static_range(top_k):  # in the order of the token's experts
        total += tl.sum(tl.where(each_rank == each, product, 0.0), axis=0)
    output = tl.program_id(0) * block_out + tl.arange(0, block_out)
    tl.store(y_at + token * hidden + output, total.to(kind), mask=output < hidden)


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
