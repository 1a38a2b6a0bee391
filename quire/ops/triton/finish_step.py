"""finish_step on a GPU, in one launch.

Batches of graphs are padded with a spare row, which may come many times and be computed past its end: one of its writes
wins, and none goes beyond its row.
"""

import triton
import triton.language as tl
from torch import Tensor

from quire.ops.step_tensors import RowStates

_BLOCK = 128
"""Sequences of a program, one for each thread of 4 warps."""


@triton.jit(do_not_specialize=["num_sequences", "num_sampled"])
def _finish_step(
    rows_at,
    lengths_at,
    sampled_at,
    num_computed_at,
    tokens_at,
    row_tokens,
    num_sequences,
    num_sampled,
    block: tl.constexpr,
):
    place = tl.program_id(0) * block + tl.arange(0, block)
    is_sequence = place < num_sequences
    row = tl.load(rows_at + place, mask=is_sequence, other=0)
    length = tl.load(lengths_at + place, mask=is_sequence, other=0)
    tl.store(num_computed_at + row, length, mask=is_sequence)
    if sampled_at is not None:
        is_sampled = place < num_sampled
        token = tl.load(sampled_at + place, mask=is_sampled, other=0).to(tl.int32)
        tl.store(tokens_at + row * row_tokens + length, token, mask=is_sampled & (length < row_tokens))


def finish_step(states: RowStates, rows: Tensor, lengths: Tensor, tokens: Tensor | None) -> None:
    """All contiguous."""
    assert rows.is_contiguous(), f"the stride of rows is {rows.stride()}"
    assert lengths.is_contiguous(), f"the stride of lengths is {lengths.stride()}"
    assert tokens is None or tokens.is_contiguous(), f"the stride of tokens is {tokens.stride()}"
    if not len(rows):
        return
    _finish_step[(triton.cdiv(len(rows), _BLOCK),)](
        rows,
        lengths,
        tokens,
        states.num_computed,
        states.tokens,
        states.tokens.shape[1],
        len(rows),
        0 if tokens is None else len(tokens),
        block=_BLOCK,
        num_warps=4,
    )
