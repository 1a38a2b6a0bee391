"""apply_token_bitmask on a GPU: each program has a stretch of one row's vocabulary; what is allowed is not touched."""

import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 4096
"""Tokens of a program: 128 words of a mask."""


@triton.jit(do_not_specialize=["vocabulary"])
def _apply_token_bitmask(logits_at, masks_at, rows_at, vocabulary, logits_stride, masks_stride, block: tl.constexpr):
    place = tl.program_id(0)
    row = tl.load(rows_at + place)
    token = tl.program_id(1) * block + tl.arange(0, block)
    is_token = token < vocabulary
    word = tl.load(masks_at + row * masks_stride + token // 32, mask=is_token, other=-1)
    is_out = ((word >> (token % 32)) & 1) == 0
    tl.store(logits_at + place * logits_stride + token, float("-inf"), mask=is_token & is_out)


def apply_token_bitmask(logits: Tensor, masks: Tensor, rows: Tensor) -> None:
    """Rows of both are contiguous."""
    assert logits.stride(1) == 1, f"the strides of logits are {logits.stride()}"
    assert masks.stride(1) == 1, f"the strides of masks are {masks.stride()}"
    if not len(rows):
        return
    vocabulary = logits.shape[1]
    _apply_token_bitmask[(len(rows), triton.cdiv(vocabulary, _BLOCK))](
        logits,
        masks,
        rows,
        vocabulary,
        logits.stride(0),
        masks.stride(0),
        block=_BLOCK,
        num_warps=4,
    )
