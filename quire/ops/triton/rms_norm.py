"""rms_norm on a GPU. A program takes one long row, or several short ones, and reads them once."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.triton.overlap import overlap, wait_for_inputs

_TILE = 1024
"""Elements that a program has at least: 8 for each thread of 4 warps, so one load of 16 bytes of half precision."""

_ELEMENTS_PER_WARP = 512
"""16 for each thread: two such loads under way at once, and few registers where a row has 8192."""


def row_tile(size: int) -> tuple[int, int, int]:
    """For rows of `size`: the power of two they fit in, how many of them a program takes, and with how many warps."""
    block = triton.next_power_of_2(size)
    rows = max(1, _TILE // block)
    return block, rows, min(16, max(4, rows * block // _ELEMENTS_PER_WARP))


@triton.jit
def normalised(wide, weight, eps, offset, size: tl.constexpr):
    """`wide / rms(wide) * (weight + offset)` for float32 rows that hold zeros beyond `size`.

    weight: [1, block] for all rows, or [rows, block].
    """
    mean = tl.sum(wide * wide, axis=1) / size
    return wide * tl.rsqrt(mean + eps)[:, None] * (weight + offset)


# The number of rows changes with every batch: a kernel specialised for it would be compiled while requests wait.
@triton.jit(do_not_specialize=["num_rows"])
def _rms_norm(
    x_at,
    token_stride,
    head_stride,
    weight_at,
    out_at,
    num_rows,
    eps,
    offset,
    heads: tl.constexpr,
    size: tl.constexpr,
    block: tl.constexpr,
    rows: tl.constexpr,
    overlapped: tl.constexpr,
):
    wait_for_inputs(overlapped)
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    column = tl.arange(0, block)
    within = (row < num_rows)[:, None] & (column < size)[None, :]
    # 64 bits: the elements of a long prompt outgrow 32
    start = (row // heads).to(tl.int64) * token_stride + (row % heads) * head_stride
    wide = tl.load(x_at + start[:, None] + column[None, :], mask=within, other=0.0).to(tl.float32)
    weight = tl.load(weight_at + column, mask=column < size, other=0.0).to(tl.float32)
    normed = normalised(wide, weight[None, :], eps, offset, size)
    out = out_at + row.to(tl.int64)[:, None] * size + column[None, :]
    tl.store(out, normed.to(out_at.dtype.element_ty), mask=within)


def rms_norm(x: Tensor, weight: Tensor, eps: float, offset: float) -> Tensor:
    """x: [tokens, size] or [tokens, heads, size], a view whose rows are contiguous."""
    assert x.stride(-1) == 1, f"rows of x must be contiguous, its strides are {x.stride()}"
    size = x.shape[-1]
    heads, head_stride = (x.shape[1], x.stride(1)) if x.dim() == 3 else (1, 0)
    num_rows = x.shape[0] * heads
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    block, rows, num_warps = row_tile(size)
    _rms_norm[(triton.cdiv(num_rows, rows),)](
        x,
        x.stride(0),
        head_stride,
        weight,
        out,
        num_rows,
        eps,
        offset,
        heads=heads,
        size=size,
        block=block,
        rows=rows,
        num_warps=num_warps,
        **overlap(x),
    )
    return out
