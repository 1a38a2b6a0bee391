"""sample_tokens on a GPU: several programs share a row, and draw noise where it matters; filters are `thresholds`.

Rows that take the most likely token cost no more than `argmax`, whatever the others of the batch ask for.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.adjustments import Adjusted
from quire.ops.triton.argmax import NUM_WARPS, PART, best_of_rows, first_largest, values_of
from quire.ops.triton.gumbel import gumbel_noise
from quire.ops.triton.thresholds import find_reaches, load_distances, row_scale, stride_of


@triton.jit(do_not_specialize=["parts"])
def _draw(
    logits_at,
    row_stride,
    values_at,
    which_at,
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
    parts,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    peak, temperature, random, reach = row_scale(
        row, peaks_at, temperature_at, temperature_stride, min_p_at, min_p_stride
    )
    if random:
        if reaches_at is not None:
            reach = tl.load(reaches_at + row)
        first = part * block
        token = first + tl.arange(0, block)
        distances = load_distances(logits_at, row_stride, values_at, which_at, row, token, columns, peak, temperature)
        within = distances <= reach
        total, chosen = tl.full([], float("-inf"), dtype=tl.float32), tl.zeros([], dtype=tl.int32)
        # Noise is most of the work, and most parts of a filtered row have nothing to draw.
        if tl.max(within.to(tl.int32), axis=0) > 0:
            seed = tl.load(seed_at + row * seed_stride)
            stream = tl.load(stream_at + row * stream_stride)
            position = tl.load(position_at + row * position_stride)
            noise = gumbel_noise(first, seed, stream, position, block)
            total, chosen = first_largest(tl.where(within, noise - distances, float("-inf")), token)
        tl.store(totals_at + row * parts + part, total)
        tl.store(tokens_at + row * parts + part, chosen)


@triton.jit(do_not_specialize=["parts"])
def _drawn_of_row(
    totals_at,
    part_tokens_at,
    temperature_at,
    temperature_stride,
    none_at,
    tokens_at,  # int64 [rows]: the most likely ones, which greedy rows keep
    parts,
    padded_parts: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    random = tl.load(temperature_at + row * temperature_stride) > 0
    if random & (tl.load(none_at + row) == 0):
        part = tl.arange(0, padded_parts)
        there = part < parts
        totals = tl.load(totals_at + row * parts + part, mask=there, other=float("-inf"))
        tokens = tl.load(part_tokens_at + row * parts + part, mask=there, other=2147483647)
        _, token = first_largest(totals, tokens)
        tl.store(tokens_at + row, token.to(tl.int64))


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
    adjusted: Adjusted | None = None,
    width: int | None = None,  # nothing is sorted, so nothing is saved by it
) -> tuple[Tensor, Tensor]:
    """Rows of logits must be contiguous."""
    rows, columns = logits.shape
    peaks, tokens, none = best_of_rows(logits, adjusted)
    if not rows:
        return tokens, none
    reaches = None
    if top_k is not None or top_p is not None:
        reaches = find_reaches(logits, adjusted, peaks, temperature, top_k, top_p, min_p)
    parts = triton.cdiv(columns, PART)
    totals = torch.empty((rows, parts), dtype=torch.float32, device=logits.device)
    part_tokens = torch.empty((rows, parts), dtype=torch.int32, device=logits.device)
    scale = (temperature, temperature.stride(0))
    noise = (seed, seed.stride(0), stream, stream.stride(0), position, position.stride(0))
    _draw[(rows, parts)](
        logits,
        logits.stride(0),
        *values_of(adjusted),
        peaks,
        *scale,
        min_p,
        stride_of(min_p),
        reaches,
        *noise,
        totals,
        part_tokens,
        columns,
        parts,
        block=PART,
        num_warps=NUM_WARPS,
    )
    padded = triton.next_power_of_2(parts)
    _drawn_of_row[(rows,)](totals, part_tokens, *scale, none, tokens, parts, padded_parts=padded, num_warps=1)
    return tokens, none
