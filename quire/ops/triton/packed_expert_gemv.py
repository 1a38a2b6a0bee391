"""Few tokens' experts in 8 bits or fewer, multiplied as they are packed: pair by pair on CUDA cores.

Codes become numbers in registers, as for any matrix (`quantized_skinny.py`), and the sums of a thread's run are scaled.
x is taken as it is.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

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
    arguments = (inner, up.in_order(x), ids, weights, up.bias, up.rows // 2)
    settings = _of_pairs(up, 2 * _OUTPUTS, x) | {
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
    arguments = (y, down.in_order(inner), ids, weights, down.bias)
    settings = _of_pairs(down, ranks * block_out, inner) | {
        "top_k": top_k,
        "ranks": ranks,
        "hidden": hidden,
        "some_elsewhere": some_elsewhere,
        "block_out": block_out,
    }
    launch_staged(_down, (triton.cdiv(hidden, block_out), tokens), arguments, settings, "stages")
    return y


def _of_pairs(stack: PackedStack, rows: int, x: Tensor) -> dict[str, Any]:
    """Settings of a kernel whose programs read so many rows of a matrix."""
    matrix = stack.matrix
    halves = halves_of(matrix)
    columns = min(max(_NUMBERS // rows, _LEAST_COLUMNS), max(triton.next_power_of_2(matrix.columns), _LEAST_COLUMNS))
    block = columns // halves
    return stack.planes(bytes_in_words=True) | {
        "block": block,
        "run": RUN,
        "whole_blocks": matrix.columns % columns == 0,
        "stages": _STAGES,
        "num_warps": 4,
        **overlap(x),
    }


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
