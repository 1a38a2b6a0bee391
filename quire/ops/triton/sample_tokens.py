"""sample_tokens on a GPU: several programs share a row, and draw noise where it matters; filters are `thresholds`."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.triton.argmax import BLOCK, NUM_WARPS, best_of_parts, best_of_rows, first_largest, share_rows
from quire.ops.triton.gumbel import gumbel_noise
from quire.ops.triton.thresholds import find_reaches, load_distances, row_scale, stride_of


@triton.jit(do_not_specialize=["span", "parts"])
def _draw(
    logits_at,
    row_stride,
    peaks_at,
    temperature_at,
    temperature_stride,
    min_p_at,
    min_p_stride,
    reaches_at,
    seed_at,
    seed_stride,
    stream_at,
    stream_stride,
    position_at,
    position_stride,
    totals_at,  # float32 [rows, parts]: the largest sum of score and noise
    tokens_at,  # int32 [rows, parts]: whose it is
    columns,
    span,
    parts,
    padded_parts: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    peak, temperature, random, reach = row_scale(
        row, peaks_at, parts, temperature_at, temperature_stride, min_p_at, min_p_stride, padded_parts
    )
    if reaches_at is not None:
        reach = tl.load(reaches_at + row)
    seed = tl.load(seed_at + row * seed_stride)
    stream = tl.load(stream_at + row * stream_stride)
    position = tl.load(position_at + row * position_stride)
    start = part * span
    totals = tl.full([block], float("-inf"), dtype=tl.float32)
    tokens = tl.zeros([block], dtype=tl.int32)
    for offset in range(start, tl.minimum(start + span, columns), block):
        token = offset + tl.arange(0, block)
        distances = load_distances(logits_at + row * row_stride, token, columns, peak, temperature)
        within = distances <= reach
        # Noise is most of the work, and most blocks of a filtered or greedy row have nothing to draw.
        if tl.max(within.to(tl.int32), axis=0) > 0:
            noise = tl.where(random, gumbel_noise(offset, seed, stream, position, block), 0.0)
            sums = tl.where(within, noise - distances, float("-inf"))
            tokens = tl.where(sums > totals, token, tokens)
            totals = tl.maximum(sums, totals)
    total, first = first_largest(totals, tokens)
    tl.store(totals_at + row * parts + part, total)
    tl.store(tokens_at + row * parts + part, first)


def sample_tokens(
    logits: Tensor,
    temperature: Tensor,
    seed: Tensor,
    stream: Tensor,
    position: Tensor,
    top_k: Tensor | None = None,
    top_p: Tensor | None = None,
    min_p: Tensor | None = None,
    *,
    width: int | None = None,  # nothing is sorted, so nothing is saved by it
) -> Tensor:
    """Rows of logits must be contiguous; a row without a valid token gets some token."""
    rows, columns = logits.shape
    tokens = torch.empty(rows, dtype=torch.int64, device=logits.device)
    if not rows:
        return tokens
    parts, span = share_rows(rows, columns)
    peaks, part_tokens = best_of_parts(logits)
    reaches = None
    if top_k is not None or top_p is not None:
        reaches = find_reaches(logits, peaks, temperature, top_k, top_p, min_p)
    totals = torch.empty((rows, parts), dtype=torch.float32, device=logits.device)
    filters = (peaks, temperature, temperature.stride(0), min_p, stride_of(min_p), reaches)
    noise = (seed, seed.stride(0), stream, stream.stride(0), position, position.stride(0))
    _draw[(rows, parts)](
        logits,
        logits.stride(0),
        *filters,
        *noise,
        totals,
        part_tokens,
        columns,
        span,
        parts,
        padded_parts=triton.next_power_of_2(parts),
        block=BLOCK,
        num_warps=NUM_WARPS,
    )
    best_of_rows(totals, part_tokens, tokens, None)
    return tokens
