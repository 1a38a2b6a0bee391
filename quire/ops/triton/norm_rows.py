"""Norms of rows on a GPU, of what is added to them too: what the four norms of layers share.

A program takes one long row, or several short ones, and reads them once.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.triton.overlap import overlap, wait_for_inputs

_TILE = 1024
"""Elements that a program has at least: 8 for each thread of 4 warps, so one load of 16 bytes of half precision."""

_ELEMENTS_PER_WARP = 512
"""16 for each thread: two such loads under way at once, and few registers where a row has 8192."""


@triton.jit
def normed(wide, weight, eps, offset, is_layer: tl.constexpr, size: tl.constexpr, block: tl.constexpr):
    """`wide / rms(wide) * (weight + offset)` for float32 rows that hold zeros beyond `size`; by `is_layer` of their
    differences from the mean.

    weight: [1, block] for all rows, or [rows, block].
    """
    if is_layer:
        # the variance is that of differences: taken from sums of squares, it would vanish in rows far from zero
        mean = tl.sum(wide, axis=1) / size
        wide = tl.where((tl.arange(0, block) < size)[None, :], wide - mean[:, None], 0.0)
    return wide * tl.rsqrt(tl.sum(wide * wide, axis=1) / size + eps)[:, None] * (weight + offset)


# The number of rows changes with every batch: a kernel specialised for it would be compiled while requests wait.
@triton.jit(do_not_specialize=["num_rows"])
def _norm_rows(
    x_at,
    token_stride,
    head_stride,
    added_at,
    added_stride,
    weight_at,
    bias_at,
    total_at,  # may be x_at: a program writes only what it has read, and nobody else reads it
    out_at,
    num_rows,
    eps,
    offset,
    is_layer: tl.constexpr,
    heads: tl.constexpr,
    size: tl.constexpr,
    block: tl.constexpr,
    rows: tl.constexpr,
    overlapped: tl.constexpr,
):
    wait_for_inputs(overlapped)
    row = (tl.program_id(0) * rows + tl.arange(0, rows))[:, None]
    column = tl.arange(0, block)[None, :]
    is_column = column < size
    within = (row < num_rows) & is_column
    # 64 bits: the elements of a long prompt outgrow 32
    start = (row // heads).to(tl.int64) * token_stride + (row % heads) * head_stride
    out = row.to(tl.int64) * size + column
    wide = tl.load(x_at + start + column, mask=within, other=0.0).to(tl.float32)
    weight = tl.load(weight_at + column, mask=is_column, other=0.0).to(tl.float32)
    if added_at is not None:
        added = tl.load(added_at + row.to(tl.int64) * added_stride + column, mask=within, other=0.0)
        # the norm is that of the stream as it is stored, so after rounding
        total = (wide + added.to(tl.float32)).to(total_at.dtype.element_ty)
        tl.store(total_at + out, total, mask=within)
        wide = total.to(tl.float32)
    result = normed(wide, weight, eps, offset, is_layer, size, block)
    if bias_at is not None:
        result += tl.load(bias_at + column, mask=is_column, other=0.0).to(tl.float32)
    tl.store(out_at + out, result.to(out_at.dtype.element_ty), mask=within)


def norm_rows(
    x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, offset: float = 0.0, *, is_layer: bool
) -> Tensor:
    """x: [tokens, size] or [tokens, heads, size], a view whose rows are contiguous."""
    assert x.stride(-1) == 1, f"rows of x must be contiguous, its strides are {x.stride()}"
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _launch(x, None, weight, bias, None, out, eps, offset, is_layer)
    return out


def add_norm_rows(
    x: Tensor, added: Tensor, weight: Tensor, bias: Tensor | None, eps: float, offset: float = 0.0, *, is_layer: bool
) -> tuple[Tensor, Tensor]:
    """x, added: [tokens, size], with contiguous rows. The sum is `x` itself, overwritten, where that is contiguous."""
    assert x.shape == added.shape, f"x is {tuple(x.shape)}, what is added {tuple(added.shape)}"
    assert x.dtype == added.dtype, f"x is {x.dtype}, what is added {added.dtype}"
    assert x.stride(-1) == added.stride(-1) == 1, f"rows must be contiguous, strides are {x.stride(), added.stride()}"
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    total = x if x.is_contiguous() else torch.empty_like(out)
    _launch(x, added, weight, bias, total, out, eps, offset, is_layer)
    return total, out


def _launch(
    x: Tensor,
    added: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    total: Tensor | None,
    out: Tensor,
    eps: float,
    offset: float,
    is_layer: bool,
) -> None:
    size = x.shape[-1]
    heads, head_stride = (x.shape[1], x.stride(1)) if x.dim() == 3 else (1, 0)
    num_rows = x.shape[0] * heads
    block = triton.next_power_of_2(size)
    rows = max(1, _TILE // block)
    added_stride = 0 if added is None else added.stride(0)
    given = (x, x.stride(0), head_stride, added, added_stride, weight, bias, total, out, num_rows, eps, offset)
    num_warps = min(16, max(4, rows * block // _ELEMENTS_PER_WARP))
    sizes = {"is_layer": is_layer, "heads": heads, "size": size, "block": block, "rows": rows}
    _norm_rows[(triton.cdiv(num_rows, rows),)](*given, **sizes, num_warps=num_warps, **overlap(x))
