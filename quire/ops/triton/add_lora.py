"""add_lora on a GPU: two kernels for all parts of a matrix. The first multiplies rows by the A of their adapters, the
second adds what B makes of that to the outputs. Where many rows were multiplied in chunks of their inputs, a third
between the two adds the chunks up. A row without an adapter is in no tile that does anything.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.lora_tensors import PAGE_RANK, AdapterRows, LoraMatrix
from quire.ops.triton.overlap import overlap, wait_for_inputs
from quire.ops.triton.split_sums import add_splits

_CHUNK = 512
"""Inputs that are added up before they join the rest. A program takes one chunk where rows are few, and all of them
where tiles alone keep the device busy; the order of sums is the same."""
_BLOCK_IN = 128
"""Of them at a time, where a program takes all."""
BLOCK_OUT = {16: 256, 64: 128}
"""By the rows of a tile: the sums of more would not stay in registers."""
_MOST_SPLIT_ROWS = 1024
_MOST_ROWS_ADDED_ON_READING = 16
"""Up to here every program of the second kernel adds up the chunks it reads. Of more rows that would be more to read
than B, so a kernel between the two does it once."""


def add_lora(y: Tensor, x: Tensor, matrix: LoraMatrix, rows: AdapterRows, bias: Tensor | None) -> Tensor:
    """y: [rows, out], x: [rows, in], both with contiguous rows."""
    if not len(y):
        return y
    inner = _shrink(x, matrix, rows)
    splits, num_rows, parts, ranks = inner.shape
    if splits > 1 and num_rows > _MOST_ROWS_ADDED_ON_READING:
        inner = add_splits(inner.view(splits, num_rows, parts * ranks), None, x.dtype).view(1, num_rows, parts, ranks)
    return expand(y, inner, matrix, rows, bias)


def _shrink(x: Tensor, matrix: LoraMatrix, rows: AdapterRows) -> Tensor:
    """A x of each row, for every part: float32 [splits, rows, parts, most ranks]; garbage where there is no adapter."""
    assert rows.tiles is not None, "rows are grouped first"
    chunks = triton.cdiv(x.shape[1], _CHUNK)
    splits = chunks if len(x) <= _MOST_SPLIT_ROWS else 1
    parts, most_pages = len(matrix.parts), matrix.pages.shape[1]
    inner = torch.empty((splits, len(x), parts, most_pages * PAGE_RANK), dtype=torch.float32, device=x.device)
    tiles = rows.tiles.numel() // rows.block_rows
    _shrink_tile[(tiles * parts, splits)](
        inner,
        x,
        *_tables(matrix, rows),
        matrix.down,
        matrix.down.stride(0),
        matrix.down.stride(1),
        len(x),
        x.shape[1],
        x.stride(0),
        parts=parts,
        most_pages=most_pages,
        has_experts=rows.experts is not None,
        block_rows=rows.block_rows,
        block_in=_BLOCK_IN,
        chunk=_CHUNK,
        chunks=chunks // splits,
        page_rank=PAGE_RANK,
        widen=not x.is_cuda,  # the interpreter holds bfloat16 as integers, and would multiply those
        num_warps=4,
        **overlap(x),
    )
    return inner


def expand(y: Tensor, inner: Tensor, matrix: LoraMatrix, rows: AdapterRows, bias: Tensor | None) -> Tensor:
    """Add B of `inner` [splits, rows, parts, ranks] to y."""
    assert rows.tiles is not None, "rows are grouped first"
    assert len(matrix.parts) <= 3, "a matrix has at most q, k and v"
    first, second, third = (*matrix.parts, 0, 0)[:3]
    block_out = BLOCK_OUT[rows.block_rows]
    blocks = sum(triton.cdiv(size, block_out) for size in matrix.parts)
    tiles = rows.tiles.numel() // rows.block_rows
    _expand_tile[(tiles * blocks,)](
        y,
        inner,
        *_tables(matrix, rows),
        matrix.up,
        matrix.up.stride(0),
        matrix.up.stride(1),
        matrix.is_dora,
        bias,
        len(y),
        y.stride(0),
        first,
        second,
        third,
        parts=len(matrix.parts),
        splits=inner.shape[0],
        most_pages=matrix.pages.shape[1],
        has_experts=rows.experts is not None,
        block_rows=rows.block_rows,
        block_out=block_out,
        page_rank=PAGE_RANK,
        widen=not y.is_cuda,
        num_warps=4,
        **overlap(y),
    )
    return y


def _tables(matrix: LoraMatrix, rows: AdapterRows) -> tuple[Tensor | None, ...]:
    return rows.tiles, rows.slots, rows.experts, matrix.pages, matrix.counts


@triton.jit(do_not_specialize=["num_rows"])
def _shrink_tile(
    inner_at,
    x_at,
    tiles_at,
    slots_at,
    experts_at,
    pages_at,
    counts_at,
    down_at,
    page_stride,
    expert_stride,
    num_rows,
    in_size,
    x_stride,
    parts: tl.constexpr,
    most_pages: tl.constexpr,
    has_experts: tl.constexpr,
    block_rows: tl.constexpr,
    block_in: tl.constexpr,
    chunk: tl.constexpr,
    chunks: tl.constexpr,
    page_rank: tl.constexpr,
    widen: tl.constexpr,
    overlapped: tl.constexpr,
):
    """inner[split, row, part, rank] = Σ x[row, in] * down[page, part, in, rank] over this split's inputs."""
    wait_for_inputs(overlapped)
    tile = tl.program_id(0) // parts
    part = tl.program_id(0) % parts
    split = tl.program_id(1)
    row = tl.load(tiles_at + tile * block_rows + tl.arange(0, block_rows))
    some = tl.max(row, axis=0)
    if some < 0:  # nobody has this tile
        return
    slot = tl.load(slots_at + some)
    if slot < 0:
        return
    count = tl.load(counts_at + slot)
    is_row = row >= 0
    safe_row = tl.maximum(row, 0).to(tl.int64)
    expert = 0
    if has_experts:
        expert = tl.load(experts_at + some)
    rank = tl.arange(0, page_rank)
    for number in range(count):
        page = tl.load(pages_at + slot * most_pages + number).to(tl.int64)
        matrix_at = down_at + page * page_stride + expert * expert_stride + part.to(tl.int64) * in_size * page_rank
        total = tl.zeros([block_rows, page_rank], tl.float32)
        for piece in range(chunks):
            begin = (split * chunks + piece) * chunk
            sums = tl.zeros([block_rows, page_rank], tl.float32)
            for start in range(0, chunk, block_in):
                inputs = begin + start + tl.arange(0, block_in)
                within = inputs < in_size
                x = tl.load(
                    x_at + safe_row[:, None] * x_stride + inputs[None, :],
                    mask=is_row[:, None] & within[None, :],
                    other=0.0,
                )
                weights = tl.load(
                    matrix_at + inputs[:, None] * page_rank + rank[None, :], mask=within[:, None], other=0.0
                )
                if widen:
                    x = x.to(tl.float32)
                    weights = weights.to(tl.float32)
                sums = tl.dot(x, weights, sums, input_precision="ieee")
            total += sums
        to = ((split * num_rows + safe_row) * parts + part) * (most_pages * page_rank) + number * page_rank
        tl.store(inner_at + to[:, None] + rank[None, :], total, mask=is_row[:, None])


@triton.jit
def _outputs(block, first_size, second_size, third_size, block_out: tl.constexpr):
    """The part that a block of outputs is of, its outputs, and which of them there are: blocks do not cross parts."""
    first_blocks = tl.cdiv(first_size, block_out)
    before_third = first_blocks + tl.cdiv(second_size, block_out)
    is_second = block >= first_blocks
    is_third = block >= before_third
    part = is_second.to(tl.int32) + is_third.to(tl.int32)
    start = tl.where(is_third, first_size + second_size, tl.where(is_second, first_size, 0))
    size = tl.where(is_third, third_size, tl.where(is_second, second_size, first_size))
    before = tl.where(is_third, before_third, tl.where(is_second, first_blocks, 0))
    within = (block - before) * block_out + tl.arange(0, block_out)
    return part, start + within, within < size


@triton.jit(do_not_specialize=["num_rows"])
def _expand_tile(
    y_at,
    inner_at,
    tiles_at,
    slots_at,
    experts_at,
    pages_at,
    counts_at,
    up_at,
    page_stride,
    expert_stride,
    is_dora_at,
    bias_at,
    num_rows,
    y_stride,
    first_size,
    second_size,
    third_size,
    parts: tl.constexpr,
    splits: tl.constexpr,
    most_pages: tl.constexpr,
    has_experts: tl.constexpr,
    block_rows: tl.constexpr,
    block_out: tl.constexpr,
    page_rank: tl.constexpr,
    widen: tl.constexpr,
    overlapped: tl.constexpr,
):
    """y[row, out] += Σ inner[row, part, rank] * up[page, rank, out]; of DoRA's, (y - bias + Σ) * factor + bias."""
    wait_for_inputs(overlapped)
    blocks = tl.cdiv(first_size, block_out) + tl.cdiv(second_size, block_out) + tl.cdiv(third_size, block_out)
    tile = tl.program_id(0) // blocks
    row = tl.load(tiles_at + tile * block_rows + tl.arange(0, block_rows))
    some = tl.max(row, axis=0)
    if some < 0:
        return
    slot = tl.load(slots_at + some)
    if slot < 0:
        return
    count = tl.load(counts_at + slot)
    if count == 0:
        return
    part, output, is_output = _outputs(tl.program_id(0) % blocks, first_size, second_size, third_size, block_out)
    out_size = first_size + second_size + third_size
    is_row = row >= 0
    safe_row = tl.maximum(row, 0).to(tl.int64)
    expert = 0
    if has_experts:
        expert = tl.load(experts_at + some)
    rank = tl.arange(0, page_rank)
    kind: tl.constexpr = y_at.dtype.element_ty
    total = tl.zeros([block_rows, block_out], tl.float32)
    for number in range(count):
        page = tl.load(pages_at + slot * most_pages + number).to(tl.int64)
        inner = tl.zeros([block_rows, page_rank], tl.float32)
        for split in tl.static_range(splits):
            at = ((split * num_rows + safe_row) * parts + part) * (most_pages * page_rank) + number * page_rank
            inner += tl.load(inner_at + at[:, None] + rank[None, :], mask=is_row[:, None], other=0.0)
        weights = tl.load(
            up_at + page * page_stride + expert * expert_stride + rank[:, None] * out_size + output[None, :],
            mask=is_output[None, :],
            other=0.0,
        )
        if widen:
            weights = weights.to(tl.float32)
        else:
            inner = inner.to(kind)
        total = tl.dot(inner, weights, total, input_precision="ieee")
    to = y_at + safe_row[:, None] * y_stride + output[None, :]
    mask = is_row[:, None] & is_output[None, :]
    y = tl.load(to, mask=mask, other=0.0).to(tl.float32)
    if tl.load(is_dora_at + slot) != 0:
        page = tl.load(pages_at + slot * most_pages).to(tl.int64)
        factors_at = up_at + page * page_stride + expert * expert_stride + page_rank * out_size
        factor = tl.load(factors_at + output, mask=is_output, other=1.0).to(tl.float32)
        bias = tl.zeros([block_out], tl.float32)
        if bias_at is not None:
            bias = tl.load(bias_at + output, mask=is_output, other=0.0).to(tl.float32)
        y = (y - bias[None, :] + total) * factor[None, :] + bias[None, :]
    else:
        y += total
    tl.store(to, y.to(kind), mask=mask)
