"""Adding up what the programs found that share the inputs of a GEMM's outputs."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.triton.overlap import overlap, wait_for_inputs

BLOCK_OF_SUMS = 256
"""Outputs that one program adds up after a split: sums are few, so programs stay small to be many."""


def add_splits(sums: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """[splits, rows, out] in float32 to [rows, out] in `dtype`, with the bias added."""
    splits, rows, out_size = sums.shape
    y = torch.empty((rows, out_size), dtype=dtype, device=sums.device)
    _add_splits[(triton.cdiv(out_size, BLOCK_OF_SUMS), rows)](
        y, sums, bias, rows, out_size, splits=splits, block=BLOCK_OF_SUMS, num_warps=2, **overlap(sums)
    )
    return y


@triton.jit(do_not_specialize=["rows"])
def _add_splits(
    y_at, sums_at, bias_at, rows, out_size, splits: tl.constexpr, block: tl.constexpr, overlapped: tl.constexpr
):
    """y[row, out] = Σ sums[split, row, out] + bias[out]: split by split, so that a GEMM always rounds alike."""
    wait_for_inputs(overlapped)
    outputs = tl.program_id(0) * block + tl.arange(0, block)
    row = tl.program_id(1)
    is_output = outputs < out_size
    total = tl.zeros([block], tl.float32)
    for split in tl.static_range(splits):
        total += tl.load(sums_at + (split * rows + row) * out_size + outputs, mask=is_output, other=0.0)
    if bias_at is not None:
        total += tl.load(bias_at + outputs, mask=is_output, other=0.0).to(tl.float32)
    tl.store(y_at + row * out_size + outputs, total.to(y_at.dtype.element_ty), mask=is_output)
