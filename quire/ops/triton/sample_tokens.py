"""sample_tokens on a GPU: several programs share a row; filters are `thresholds`.

Rows that take the most likely token cost no more than `argmax`, whatever the others of the batch ask for. In the others
hardly any token can win: the best sum of score and noise is about the logarithm of the mass that is drawn from, and
seldom much less. Tokens whose uniform number is too large for that are passed over without any logarithm. Where in the
end nothing reached what was hoped for, or what was drawn may lie beyond the exact reach, the row is drawn again without
hope and with the exact reach: no result depends on hopes.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.adjustments import Adjusted
from quire.ops.triton.argmax import NUM_WARPS, PART, best_of_rows, first_largest, values_of
from quire.ops.triton.gumbel import gumbel_noise, uniform_numbers
from quire.ops.triton.thresholds import Reaches, load_distances, load_wishes, row_scale, stride_of

_SLACK = tl.constexpr(2.0)
"""How far below the logarithm of the mass a winner is hoped for: one in 1,600 lies lower, and about 7 tokens of a
row are looked at for it."""
_MOST = tl.constexpr(1.001 * math.exp(2.0))
"""Uniform numbers of a winner are less than this, by the mass; with something for rounding."""


@triton.jit
def _mass_drawn_from(row, random, masses_at, top_k_at, top_k_stride, top_p_at, top_p_stride, min_p_at, min_p_stride):
    """At least: that of the most likely token is 1."""
    top_k, top_p = load_wishes(row, random, top_k_at, top_k_stride, top_p_at, top_p_stride)
    mass = tl.load(masses_at + row) * top_p
    if min_p_at is not None:
        mass = tl.where(tl.load(min_p_at + row * min_p_stride) > 0, 1.0, mass)
    return tl.maximum(tl.where(top_k > 0, 1.0, mass), 1.0)


@triton.jit(do_not_specialize=["parts"])
def _draw(
    logits_at,
    row_stride,
    values_at,
    which_at,
    peaks_at,
    masses_at,
    temperature_at,
    temperature_stride,
    top_k_at,
    top_k_stride,
    top_p_at,
    top_p_stride,
    min_p_at,
    min_p_stride,
    reaches_at,
    seed_at,
    seed_stride,
    stream_at,
    stream_stride,
    position_at,
    position_stride,
    again_at,  # bool [rows]
    totals_at,  # float32 [rows, parts]: the largest sum of score and noise
    tokens_at,  # int32 [rows, parts]: whose it is
    columns,
    parts,
    hopes: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    peak, temperature, random, reach = row_scale(
        row, peaks_at, temperature_at, temperature_stride, min_p_at, min_p_stride
    )
    draws = random if hopes else tl.load(again_at + row) != 0
    if draws:
        if reaches_at is not None:
            reach = tl.load(reaches_at + row)
        first = part * block
        token = first + tl.arange(0, block)
        distances = load_distances(logits_at, row_stride, values_at, which_at, row, token, columns, peak, temperature)
        within = distances <= reach
        total, chosen = tl.full([], float("-inf"), dtype=tl.float32), tl.zeros([], dtype=tl.int32)
        if tl.max(within.to(tl.int32), axis=0) > 0:  # most parts of a filtered row have nothing to draw
            seed = tl.load(seed_at + row * seed_stride)
            stream = tl.load(stream_at + row * stream_stride)
            position = tl.load(position_at + row * position_stride)
            uniform = uniform_numbers(first, seed, stream, position, block)
            if hopes:
                mass = _mass_drawn_from(
                    row, random, masses_at, top_k_at, top_k_stride, top_p_at, top_p_stride, min_p_at, min_p_stride
                )
                within = within & (uniform < tl.exp(-distances) * (_MOST / mass))
            if tl.max(within.to(tl.int32), axis=0) > 0:
                total, chosen = first_largest(tl.where(within, gumbel_noise(uniform) - distances, float("-inf")), token)
        tl.store(totals_at + row * parts + part, total)
        tl.store(tokens_at + row * parts + part, chosen)


@triton.jit(do_not_specialize=["parts"])
def _drawn_of_row(
    totals_at,
    part_tokens_at,
    masses_at,
    temperature_at,
    temperature_stride,
    top_k_at,
    top_k_stride,
    top_p_at,
    top_p_stride,
    min_p_at,
    min_p_stride,
    logits_at,
    row_stride,
    values_at,
    which_at,
    peaks_at,
    sure_at,
    none_at,
    again_at,
    tokens_at,  # int64 [rows]: the most likely ones, which greedy rows keep
    columns,
    parts,
    hopes: tl.constexpr,
    padded_parts: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    random = tl.load(temperature_at + row * temperature_stride) > 0
    draws = random & (tl.load(none_at + row) == 0) if hopes else tl.load(again_at + row) != 0
    again = tl.zeros([], dtype=tl.int1)
    if draws:
        part = tl.arange(0, padded_parts)
        there = part < parts
        totals = tl.load(totals_at + row * parts + part, mask=there, other=float("-inf"))
        tokens = tl.load(part_tokens_at + row * parts + part, mask=there, other=2147483647)
        total, token = first_largest(totals, tokens)
        tl.store(tokens_at + row, token.to(tl.int64))
        if hopes:
            mass = _mass_drawn_from(
                row, random, masses_at, top_k_at, top_k_stride, top_p_at, top_p_stride, min_p_at, min_p_stride
            )
            again = (total >= tl.log(mass) - _SLACK) == 0  # also where one is no number
            if sure_at is not None:
                peak, temperature, _is_random, _reach = row_scale(
                    row, peaks_at, temperature_at, temperature_stride, None, 0
                )
                distance = load_distances(
                    logits_at, row_stride, values_at, which_at, row, token, columns, peak, temperature
                )
                again = again | (distance > tl.load(sure_at + row))
    if hopes:
        tl.store(again_at + row, again)


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
    peaks, tokens, none, masses = best_of_rows(logits, adjusted, temperature)
    if not rows:
        return tokens, none
    reaches = None
    if top_k is not None or top_p is not None:
        reaches = Reaches(logits, adjusted, peaks, masses, temperature, top_k, top_p, min_p)
    parts, device = triton.cdiv(columns, PART), logits.device
    totals = torch.empty((rows, parts), dtype=torch.float32, device=device)
    part_tokens = torch.empty((rows, parts), dtype=torch.int32, device=device)
    again = torch.empty(rows, dtype=torch.bool, device=device)
    wishes = (top_k, stride_of(top_k), top_p, stride_of(top_p), min_p, stride_of(min_p))
    filters = (masses, temperature, temperature.stride(0), *wishes)
    source = (logits, logits.stride(0), *values_of(adjusted), peaks)
    noise = (seed, seed.stride(0), stream, stream.stride(0), position, position.stride(0))
    reach, sure = (None, None) if reaches is None else (reaches.values, reaches.sure)
    found, padded = (totals, part_tokens), triton.next_power_of_2(parts)
    for hopes in (True, False):
        if reaches is not None and not hopes:
            reaches.make_exact(again)
        drawn = (*source, *filters, reach, *noise, again, *found)
        _draw[(rows, parts)](*drawn, columns, parts, hopes=hopes, block=PART, num_warps=NUM_WARPS)
        best = (*found, *filters, *source, sure, none, again, tokens)
        _drawn_of_row[(rows,)](*best, columns, parts, hopes=hopes, padded_parts=padded, num_warps=1)
    return tokens, none
