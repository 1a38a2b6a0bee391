"""add_rms_norm on a GPU: the residual stream is read and written once, and its norm comes out of the same pass."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.triton.overlap import overlap, wait_for_inputs
from quire.ops.triton.rms_norm import normalised, row_tile


# The number of rows changes with every batch: a kernel specialised for it would be compiled while requests wait.
@triton.jit(do_not_specialize=["num_rows"])
def _add_rms_norm(
    x_at,
    x_stride,
    added_at,
    added_stride,
    weight_at,
    total_at,
    normed_at,
    num_rows,
    eps,
    offset,
    size: tl.constexpr,
    block: tl.constexpr,
    rows: tl.constexpr,
    overlapped: tl.constexpr,
):
    """`total_at` may be `x_at`: a program writes only what it has read, and nobody else reads it."""
    wait_for_inputs(overlapped)
    row = (tl.program_id(0) * rows + tl.arange(0, rows)).to(tl.int64)[:, None]
    column = tl.arange(0, block)
    within = (row < num_rows) & (column < size)[None, :]
    x = tl.load(x_at + row * x_stride + column[None, :], mask=within, other=0.0)
    added = tl.load(added_at + row * added_stride + column[None, :], mask=within, other=0.0)
    weight = tl.load(weight_at + column, mask=column < size, other=0.0).to(tl.float32)
    # the norm is that of the stream as it is stored, so after rounding
    total = (x.to(tl.float32) + added.to(tl.float32)).to(total_at.dtype.element_ty)
    out = row * size + column[None, :]
    tl.store(total_at + out, total, mask=within)
    normed = normalised(total.to(tl.float32), weight[None, :], eps, offset, size)
    tl.store(normed_at + out, normed.to(normed_at.dtype.element_ty), mask=within)


def add_rms_norm(x: Tensor, added: Tensor, weight: Tensor, eps: float, offset: float) -> tuple[Tensor, Tensor]:
    """The sum is `x` itself, overwritten, where that is contiguous. Rows of both must be."""
    assert x.shape == added.shape, f"x is {tuple(x.shape)}, what is added {tuple(added.shape)}"
    assert x.dtype == added.dtype, f"x is {x.dtype}, what is added {added.dtype}"
    assert x.stride(-1) == added.stride(-1) == 1, f"rows must be contiguous, strides are {x.stride(), added.stride()}"
    num_rows, size = x.shape
    normed = torch.empty((num_rows, size), dtype=x.dtype, device=x.device)
    total = x if x.is_contiguous() else torch.empty_like(normed)
    block, rows, num_warps = row_tile(size)
    _add_rms_norm[(triton.cdiv(num_rows, rows),)](
        x,
        x.stride(0),
        added,
        added.stride(0),
        weight,
        total,
        normed,
        num_rows,
        eps,
        offset,
        size=size,
        block=block,
        rows=rows,
        num_warps=num_warps,
        **overlap(x),
    )
    return total, normed
