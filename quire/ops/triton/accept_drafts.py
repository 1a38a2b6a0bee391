"""accept_drafts on a GPU, in one launch.

Batches of graphs are padded with a spare row, which may come many times and be computed past its end: one of its writes
wins, and none goes beyond its row.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.step_tensors import RowStates

_BLOCK = 32
"""Sequences of a program, one for each thread of a warp."""


@triton.jit(do_not_specialize=["num_sequences"])
def _accept_drafts(
    rows_at,
    lengths_at,
    granted_at,
    drawn_at,
    ready_at,
    num_computed_at,
    tokens_at,
    row_tokens,
    counts_at,
    verified_at,
    num_sequences,
    width: tl.constexpr,
    block: tl.constexpr,
):
    place = tl.program_id(0) * block + tl.arange(0, block)
    is_there = place < num_sequences
    row = tl.load(rows_at + place, mask=is_there, other=0)
    granted = tl.load(granted_at + place, mask=is_there, other=0)
    begin = tl.load(lengths_at + place, mask=is_there, other=0) - granted
    verified = tl.minimum(granted, tl.load(ready_at + row, mask=is_there, other=0))
    count = tl.full((block,), 1, tl.int64)
    is_right = is_there
    for number in tl.static_range(width):
        token = tl.load(drawn_at + place * width + number, mask=is_there, other=0).to(tl.int32)
        at = tokens_at + row * row_tokens + begin + number
        is_inside = begin + number < row_tokens
        draft = tl.load(at, mask=is_there & is_inside, other=0)
        tl.store(at, token, mask=is_right & is_inside)
        is_right = is_right & (verified > number) & (draft == token)
        count += is_right.to(tl.int64)
    tl.store(num_computed_at + row, begin + count - 1, mask=is_there)
    tl.store(counts_at + place, count, mask=is_there)
    tl.store(verified_at + place, verified, mask=is_there)


def accept_drafts(
    states: RowStates, rows: Tensor, lengths: Tensor, granted: Tensor, drawn: Tensor, ready: Tensor
) -> tuple[Tensor, Tensor]:
    """All contiguous."""
    for name, tensor in (("rows", rows), ("lengths", lengths), ("granted", granted), ("drawn", drawn)):
        assert tensor.is_contiguous(), f"the strides of {name} are {tensor.stride()}"
    counts, verified = torch.empty_like(rows), torch.empty_like(rows)
    if len(rows):
        _accept_drafts[(triton.cdiv(len(rows), _BLOCK),)](
            rows,
            lengths,
            granted,
            drawn,
            ready,
            states.num_computed,
            states.tokens,
            states.tokens.shape[1],
            counts,
            verified,
            len(rows),
            width=drawn.shape[1],
            block=_BLOCK,
            num_warps=1,
        )
    return counts, verified
