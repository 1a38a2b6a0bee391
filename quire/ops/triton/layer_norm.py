"""layer_norm on a GPU. A program takes one long row, or several short ones, and reads them once."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.triton.overlap import overlap, wait_for_inputs
from quire.ops.triton.rms_norm import row_tile


@triton.jit
def standardised(wide, eps, size: tl.constexpr, block: tl.constexpr):
    """`(wide - mean) / deviation` for float32 rows that hold zeros beyond `size`; so does the result."""
    # the variance is that of differences: taken from sums of squares, it would vanish in rows far from zero
    mean = tl.sum(wide, axis=1) / size
    centred = tl.where((tl.arange(0, block) < size)[None, :], wide - mean[:, None], 0.0)
    variance = tl.sum(centred * centred, axis=1) / size
    return centred * tl.rsqrt(variance + eps)[:, None]


@triton.jit
def weighted(normed, weight_at, bias_at, has_bias: tl.constexpr, size: tl.constexpr, block: tl.constexpr):
    """`normed * weight + bias`."""
    column = tl.arange(0, block)
    weight = tl.load(weight_at + column, mask=column < size, other=0.0).to(tl.float32)
    result = normed * weight[None, :]
    if has_bias:
        result += tl.load(bias_at + column, mask=column < size, other=0.0).to(tl.float32)[None, :]
    return result


# The number of rows changes with every batch: a kernel specialised for it would be compiled while requests wait.
@triton.jit(do_not_specialize=["num_rows"])
def _layer_norm(
    x_at,
    token_stride,
    head_stride,
    weight_at,
    bias_at,
    out_at,
    num_rows,
    eps,
    has_bias: tl.constexpr,
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
    normed = weighted(standardised(wide, eps, size, block), weight_at, bias_at, has_bias, size, block)
    out = out_at + row.to(tl.int64)[:, None] * size + column[None, :]
    tl.store(out, normed.to(out_at.dtype.element_ty), mask=within)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    """x: [tokens, size] or [tokens, heads, size], a view whose rows are contiguous."""
    assert x.stride(-1) == 1, f"rows of x must be contiguous, its strides are {x.stride()}"
    size = x.shape[-1]
    heads, head_stride = (x.shape[1], x.stride(1)) if x.dim() == 3 else (1, 0)
    num_rows = x.shape[0] * heads
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    block, rows, num_warps = row_tile(size)
    _layer_norm[(triton.cdiv(num_rows, rows),)](
        x,
        x.stride(0),
        head_stride,
        weight,
        bias,
        out,
        num_rows,
        eps,
        has_bias=bias is not None,
        heads=heads,
        size=size,
        block=block,
        rows=rows,
        num_warps=num_warps,
        **overlap(x),
    )
    return out
