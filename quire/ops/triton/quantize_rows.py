"""Rows of activations in 8 bits: each by its largest value, or group by group, or by one scale for all."""

from typing import Literal

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.triton.overlap import overlap, wait_for_inputs

LARGEST = {torch.float8_e4m3fn: 448.0, torch.int8: 127.0}
By = Literal["row", "group", "one scale"]


def quantize_rows(x: Tensor, dtype: torch.dtype, group: int, scale: Tensor | None) -> tuple[Tensor, Tensor]:
    """x [rows, columns] in float8_e4m3fn or int8, and its scales, float32 [rows, columns / group] or [rows, 1].

    A group of 0 is the row. With a `scale`, that of a checkpoint, all rows have it, and what is beyond it is cut off.
    """
    rows, columns = x.shape
    groups = columns // group if group else 1
    values = torch.empty((rows, columns), dtype=dtype, device=x.device)
    scales = torch.empty((rows, groups), dtype=torch.float32, device=x.device)
    block = group or min(4096, triton.next_power_of_2(columns))
    _quantize[(rows, groups if group else 1)](
        values,
        scales,
        x,
        scale,
        x.stride(0),
        group or columns,
        columns,
        groups,
        largest=LARGEST[dtype],
        whole=dtype == torch.int8,
        block=block,
        num_warps=1 if group else 8,
        **overlap(x),
    )
    return values, scales


@triton.jit
def _quantize(
    values_at,
    scales_at,
    x_at,
    scale_at,
    x_stride,
    group,
    columns,
    groups,
    largest: tl.constexpr,
    whole: tl.constexpr,
    block: tl.constexpr,
    overlapped: tl.constexpr,
):
    """scale = max |x| / largest; value = x / scale, rounded to the nearest."""
    wait_for_inputs(overlapped)
    row = tl.program_id(0).to(tl.int64)
    number = tl.program_id(1)
    x_row = x_at + row * x_stride + number * group
    if scale_at is None:
        peaks = tl.zeros([block], tl.float32)
        for start in tl.range(0, group, block):
            column = start + tl.arange(0, block)
            peaks = tl.maximum(peaks, tl.abs(tl.load(x_row + column, mask=column < group, other=0.0).to(tl.float32)))
        # a row of zeros has a scale that divides
        scale = tl.maximum(tl.max(peaks, axis=0), 1e-12) / largest
    else:
        scale = tl.load(scale_at).to(tl.float32)
    tl.store(scales_at + row * groups + number, scale)
    for start in tl.range(0, group, block):
        column = start + tl.arange(0, block)
        x = tl.load(x_row + column, mask=column < group, other=0.0).to(tl.float32) / scale
        x = tl.minimum(tl.maximum(x, -largest), largest)
        if whole:
            x = (x + 12582912.0) - 12582912.0  # 1.5 * 2^23: leaves no bits for fractions
        tl.store(
            values_at + row * columns + number * group + column,
            x.to(values_at.dtype.element_ty),
            mask=column < group,
        )
