"""argmax on a GPU: several programs share a row's columns, and what each found best meets in a second kernel.

One program a row would leave most of the GPU idle: a batch may have one row, and a row has up to 262144 columns.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024
"""Columns of a row that a program takes at once: 8 for each thread of 4 warps, so two loads of 16 bytes of float32. A
multiple of 4, since noise comes in fours."""
NUM_WARPS = 4
_PROGRAMS = 8 * 132
"""Enough for 132 multiprocessors with 8 programs each: 8 × 4 KB of float32 are then on their way to each of them, about
what latency times bandwidth asks for."""


def share_rows(rows: int, columns: int) -> tuple[int, int]:
    """How many programs share a row, and how many columns each has (the last fewer): a multiple of BLOCK."""
    blocks = triton.cdiv(columns, BLOCK)
    span = triton.cdiv(blocks, min(blocks, triton.cdiv(_PROGRAMS, rows))) * BLOCK
    return triton.cdiv(columns, span), span


@triton.jit
def first_largest(values, tokens):
    """The largest of `values`, none of them NaN, and the lowest of the tokens that have it."""
    largest = tl.max(values, axis=0)
    return largest, tl.min(tl.where(values == largest, tokens, 2147483647), axis=0)


# Batches of any number of rows share what is compiled, but for the power of two that holds the parts of a row.
@triton.jit(do_not_specialize=["span", "parts"])
def _best_of_part(logits_at, row_stride, peaks_at, tokens_at, columns, span, parts, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    wide = peaks_at.dtype.element_ty
    start = part * span
    peaks = tl.full([block], float("-inf"), dtype=wide)
    tokens = tl.zeros([block], dtype=tl.int32)
    for offset in range(start, tl.minimum(start + span, columns), block):
        token = offset + tl.arange(0, block)
        logits = tl.load(logits_at + row * row_stride + token, mask=token < columns, other=float("-inf")).to(wide)
        logits = tl.where(logits < float("inf"), logits, float("inf"))  # NaN too: either way the row has none
        tokens = tl.where(logits > peaks, token, tokens)
        peaks = tl.maximum(logits, peaks)
    peak, first = first_largest(peaks, tokens)
    tl.store(peaks_at + row * parts + part, peak)
    tl.store(tokens_at + row * parts + part, first)


@triton.jit(do_not_specialize=["parts"])
def _best_of_row(peaks_at, part_tokens_at, tokens_at, none_at, parts, padded_parts: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, padded_parts)
    there = part < parts
    peaks = tl.load(peaks_at + row * parts + part, mask=there, other=float("-inf"))
    peak, token = first_largest(peaks, tl.load(part_tokens_at + row * parts + part, mask=there, other=2147483647))
    none = (peak == float("inf")) | (peak == float("-inf"))
    tl.store(tokens_at + row, tl.where(none, 0, token).to(tl.int64))
    if none_at is not None:
        tl.store(none_at + row, none)


def best_of_parts(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Of each part of each row, the largest logit and its lowest token, int32: both [rows, parts]. NaN is +inf."""
    assert logits.stride(-1) == 1, f"rows must be contiguous, strides are {logits.stride()}"
    rows, columns = logits.shape
    parts, span = share_rows(rows, columns)
    peaks = torch.empty((rows, parts), dtype=torch.promote_types(logits.dtype, torch.float32), device=logits.device)
    tokens = torch.empty((rows, parts), dtype=torch.int32, device=logits.device)
    _best_of_part[(rows, parts)](
        logits, logits.stride(0), peaks, tokens, columns, span, parts, block=BLOCK, num_warps=NUM_WARPS
    )
    return peaks, tokens


def best_of_rows(peaks: Tensor, part_tokens: Tensor, tokens: Tensor, none: Tensor | None) -> None:
    """From the best of parts to that of rows: int64 `tokens` [rows], 0 where there is `none`: the peak is infinite."""
    rows, parts = peaks.shape
    padded_parts = triton.next_power_of_2(parts)
    _best_of_row[(rows,)](
        peaks, part_tokens, tokens, none, parts, padded_parts=padded_parts, num_warps=1 if padded_parts <= 128 else 4
    )


def argmax(logits: Tensor) -> tuple[Tensor, Tensor]:
    """logits: [rows, vocabulary] of any float type, with contiguous rows."""
    tokens = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
    none = torch.empty(len(logits), dtype=torch.bool, device=logits.device)
    if len(logits):
        best_of_rows(*best_of_parts(logits), tokens, none)
    return tokens, none
