"""mask_logits on a GPU: a program reads a stretch of one row's mask, and writes where that leaves tokens out."""

import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 4096
"""Tokens of a program, 16 for each thread of 8 warps."""
_OUT = tl.constexpr(float("-inf"))


@triton.jit
def _mask(logits_at, logits_stride, places_at, masks_at, masks_stride, columns, block: tl.constexpr):
    number = tl.program_id(0).to(tl.int64)
    place = tl.load(places_at + number)
    token = tl.program_id(1) * block + tl.arange(0, block)
    there = token < columns
    words = tl.load(masks_at + number * masks_stride + token // 32, mask=there, other=-1)
    is_out = there & (((words >> (token % 32)) & 1) == 0)
    logits = logits_at + place * logits_stride + token
    raw = tl.load(logits, mask=is_out, other=0.0).to(tl.float32)
    tl.store(logits, _OUT, mask=is_out & (raw < float("inf")))


def mask_logits(logits: Tensor, places: Tensor, masks: Tensor) -> None:
    """Rows of logits and masks are contiguous."""
    count, columns = len(places), logits.shape[1]
    if count:
        given = (logits, logits.stride(0), places, masks, masks.stride(0), columns)
        _mask[(count, triton.cdiv(columns, _BLOCK))](*given, block=_BLOCK, num_warps=8)
