"""How far below the most likely token others may lie to be drawn: top-k, top-p and min-p as one number a row.

The *distance* of a token is (peak - logit) / temperature, at least 0. Each filter keeps the tokens up to some distance
(see `reference/top_k_top_p_min_p.py`), and the *reach* of a row is the least of these. No vocabulary is sorted:
- `_aim` looks at a sample of the row, and says around which distances the reach probably lies;
- `_measure` counts the tokens (for top-k) or weighs them (for top-p) that lie within these and a few fixed distances;
- `_gather` lists those tokens between two of the distances that may be the last one kept: a list that is short unless
  the sample misled, and exact in any case;
- `_search` finds in that list the exact distance: 8 ways in each turn, by the bits of floats.
Weights are whole numbers, as in `reference/softmax_weights.py`, so no sum depends on how a row is shared.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.adjustments import Adjusted
from quire.ops.reference.softmax_weights import UNITS
from quire.ops.triton.argmax import load_logits, values_of

FAR = 28.0
"""No reach is larger. A token so far away weighs nothing, exp(-28) < 2**-40, and no noise (see `gumbel`) brings it
before the most likely: for that, 22.88 + 2.82 is too little."""

_WAYS = 8
"""Distances to which a pass compares every token: half of them fixed, half from the sample."""
_SAMPLE = 4096
"""Tokens of a sample: 16 for each thread of 8 warps."""
_TURNS = 16
"""Halvings in the search of a sample, which ends within some thousandths."""
_BLOCK, _NUM_WARPS = 1024, 8
"""Tokens compared at once. With _WAYS for each they are 32 numbers of 64 bits a thread, which stay in registers."""
_PROGRAMS = 8 * 132
"""That measure a batch, or more: 8 on each of 132 multiprocessors."""

_FAR = tl.constexpr(FAR)
_UNITS = tl.constexpr(UNITS)
_SLOTS = tl.constexpr(2 * _WAYS + 1)
"""int64 of a row: marks (distances, as bits), what lies within each, and the length of the list."""


@triton.jit
def row_scale(row, peaks_at, temperature_at, temperature_stride, min_p_at, min_p_stride):
    """Of a row: the peak, what to divide by, whether its draw is random, and its reach by min-p alone."""
    peak = tl.load(peaks_at + row).to(tl.float32)
    temperature = tl.load(temperature_at + row * temperature_stride)
    random = temperature > 0
    reach = tl.where(random, _FAR, 0.0)
    if min_p_at is not None:
        min_p = tl.load(min_p_at + row * min_p_stride)
        reach = tl.minimum(reach, tl.abs(tl.log(tl.maximum(min_p, 1e-30))))  # 0 keeps all, and has no logarithm
    return peak, tl.where(random, temperature, 1.0), random, reach


@triton.jit
def load_distances(logits_at, row_stride, values_at, which_at, row, token, columns, peak, temperature):
    """inf beyond the row's columns. Rounded as the reference rounds, so that ties are the same."""
    distances = peak - load_logits(logits_at, row_stride, values_at, which_at, row, token, columns).to(tl.float32)
    if temperature != 1.0:  # a division rounded like this takes as long as all the rest
        distances = tl.div_rn(distances, temperature)
    return distances


@triton.jit
def _weights(distances):
    """int64, in units of 2**-40."""
    return (tl.exp(-distances) * _UNITS).to(tl.int64)


@triton.jit
def _load_wishes(row, random, top_k_at, top_k_stride, top_p_at, top_p_stride):
    """top-k (0 for none) and top-p (1 for none) of a row; none for a greedy one."""
    top_k = tl.zeros([], dtype=tl.int64)
    if top_k_at is not None:
        top_k = tl.where(random, tl.maximum(tl.load(top_k_at + row * top_k_stride), 0), 0).to(tl.int64)
    top_p = tl.full([], 1.0, dtype=tl.float32)
    if top_p_at is not None:
        top_p = tl.where(random, tl.load(top_p_at + row * top_p_stride), 1.0)
    return top_k, top_p


@triton.jit
def _bits(distance):
    """Whole numbers in the order of the distances, which are not negative."""
    return distance.to(tl.int32, bitcast=True)


@triton.jit
def _aim(
    logits_at,
    row_stride,
    values_at,
    which_at,
    peaks_at,
    temperature_at,
    temperature_stride,
    top_k_at,
    top_k_stride,
    top_p_at,
    top_p_stride,
    min_p_at,
    min_p_stride,
    measured_at,  # int64 [rows, _SLOTS]
    columns,
    stride,
    ways: tl.constexpr,
    block: tl.constexpr,
    turns: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    peak, temperature, random, reach = row_scale(
        row, peaks_at, temperature_at, temperature_stride, min_p_at, min_p_stride
    )
    top_k, top_p = _load_wishes(row, random, top_k_at, top_k_stride, top_p_at, top_p_stride)
    slot = tl.arange(0, 4 * ways)
    tl.store(measured_at + row * _SLOTS + slot, tl.zeros([4 * ways], dtype=tl.int64), mask=slot < _SLOTS)
    if (top_k > 0) | (top_p < 1):
        token = tl.arange(0, block) * stride
        distances = load_distances(logits_at, row_stride, values_at, which_at, row, token, columns, peak, temperature)
        weights = tl.where(distances <= reach, tl.where(top_k > 0, 1.0, tl.exp(-distances)), 0.0)
        weights = tl.where(distances < float("inf"), weights, 0.0)
        mass = tl.sum(weights, axis=0)
        # what the sample says of the row's share is uncertain: how much depends on how many tokens have the mass
        wanted = tl.where(top_k > 0, top_k.to(tl.float32) / stride, top_p * mass)
        doubt = tl.where(top_k > 0, 4.0 * tl.sqrt(wanted) + 4.0, 3.0 * tl.sqrt(tl.sum(weights * weights, axis=0)))
        doubt = tl.where(stride == 1, 0.0, doubt)
        # well below, just below, just above and well above
        aim = tl.arange(0, 4)
        targets = wanted + doubt * tl.where(aim == 0, -1.0, tl.where(aim == 1, -0.3, tl.where(aim == 2, 0.3, 1.0)))
        low = tl.zeros([4], dtype=tl.int32)
        high = tl.zeros([4], dtype=tl.int32) + _bits(tl.full([], _FAR, dtype=tl.float32))
        for _turn in range(turns):
            middle = low + (high - low) // 2
            within = tl.where(_bits(distances)[:, None] <= middle[None, :], weights[:, None], 0.0)
            enough = tl.sum(within, axis=0) >= targets
            high = tl.where(enough, middle, high)
            low = tl.where(enough, low, middle)
        # fixed ones besides, for what a sample misses: a few tokens that have all the mass
        fixed = tl.where(aim == 0, 1.0, tl.where(aim == 1, 4.0, tl.where(aim == 2, 10.0, _FAR))).to(tl.float32)
        tl.debug_barrier()
        tl.store(measured_at + row * _SLOTS + aim, high.to(tl.int64))
        tl.store(measured_at + row * _SLOTS + 4 + aim, _bits(fixed).to(tl.int64))


@triton.jit(do_not_specialize=["span"])
def _measure(
    logits_at,
    row_stride,
    values_at,
    which_at,
    peaks_at,
    temperature_at,
    temperature_stride,
    top_k_at,
    top_k_stride,
    top_p_at,
    top_p_stride,
    min_p_at,
    min_p_stride,
    measured_at,
    columns,
    span,
    ways: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    peak, temperature, random, reach = row_scale(
        row, peaks_at, temperature_at, temperature_stride, min_p_at, min_p_stride
    )
    top_k, top_p = _load_wishes(row, random, top_k_at, top_k_stride, top_p_at, top_p_stride)
    if (top_k > 0) | (top_p < 1):
        way = tl.arange(0, ways)
        marks = tl.load(measured_at + row * _SLOTS + way).to(tl.int32)
        amounts = tl.zeros([ways], dtype=tl.int64)
        start = tl.program_id(1) * span
        stop = tl.minimum(start + span, columns)
        if top_k > 0:
            for offset in range(start, stop, block):
                token = offset + tl.arange(0, block)
                distances = load_distances(
                    logits_at, row_stride, values_at, which_at, row, token, columns, peak, temperature
                )
                amounts += tl.sum((_bits(distances)[:, None] <= marks[None, :]).to(tl.int32), axis=0)
        else:
            for offset in range(start, stop, block):
                token = offset + tl.arange(0, block)
                distances = load_distances(
                    logits_at, row_stride, values_at, which_at, row, token, columns, peak, temperature
                )
                weights = tl.where(distances <= reach, _weights(distances), 0)
                amounts += tl.sum(tl.where(_bits(distances)[:, None] <= marks[None, :], weights[:, None], 0), axis=0)
        tl.atomic_add(measured_at + row * _SLOTS + ways + way, amounts, sem="relaxed")


@triton.jit
def _stretch(row, measured_at, top_k, top_p, ways: tl.constexpr):
    """Bits from which on and up to which the reach by top-k lies, or without one that by top-p; what lies before them;
    and the mass of the whole row, if it was weighed."""
    way = tl.arange(0, ways)
    marks = tl.load(measured_at + row * _SLOTS + way).to(tl.int32)
    amounts = tl.load(measured_at + row * _SLOTS + ways + way)
    mass = tl.max(amounts, axis=0)
    wanted = tl.where(top_k > 0, top_k.to(tl.float64), top_p.to(tl.float64) * mass.to(tl.float64))
    enough = amounts.to(tl.float64) >= wanted
    high = tl.min(tl.where(enough, marks, _bits(tl.full([], _FAR, dtype=tl.float32))), axis=0)
    low = tl.max(tl.where(enough, 0, marks + 1), axis=0)
    before = tl.max(tl.where(enough, 0, amounts), axis=0)
    return tl.minimum(low, high), high, before, mass


@triton.jit(do_not_specialize=["span"])
def _gather(
    logits_at,
    row_stride,
    values_at,
    which_at,
    peaks_at,
    temperature_at,
    temperature_stride,
    top_k_at,
    top_k_stride,
    top_p_at,
    top_p_stride,
    measured_at,
    lists_at,  # float32 [rows, columns]
    columns,
    span,
    ways: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    peak, temperature, random, _reach = row_scale(row, peaks_at, temperature_at, temperature_stride, None, 0)
    top_k, top_p = _load_wishes(row, random, top_k_at, top_k_stride, top_p_at, top_p_stride)
    if (top_k > 0) | (top_p < 1):
        low, high, _before, _mass = _stretch(row, measured_at, top_k, top_p, ways)
        # whatever top-k keeps may be the last that top-p keeps
        nearest = tl.where((top_k > 0) & (top_p < 1), 0, low)
        size_at = measured_at + row * _SLOTS + 2 * ways
        start = tl.program_id(1) * span
        for offset in range(start, tl.minimum(start + span, columns), block):
            token = offset + tl.arange(0, block)
            distances = load_distances(
                logits_at, row_stride, values_at, which_at, row, token, columns, peak, temperature
            )
            within = (distances <= high.to(tl.float32, bitcast=True)) & (_bits(distances) >= nearest)  # NaN is nowhere
            found = within.to(tl.int32)
            count = tl.sum(found, axis=0)
            if count > 0:
                # parts write in any order; nobody minds, since counts and masses have none
                first = tl.atomic_add(size_at, count.to(tl.int64), sem="relaxed")
                place = first + tl.cumsum(found, axis=0) - 1
                tl.store(lists_at + row * columns + place, distances, mask=within)


@triton.jit
def _amounts(list_at, size, marks, weighed: tl.constexpr, block: tl.constexpr):
    """int64: how many of a list lie within each of `marks` [ways], in bits; or how much they weigh."""
    amounts = tl.zeros_like(marks).to(tl.int64)
    for offset in range(0, size, block):
        place = offset + tl.arange(0, block)
        distances = tl.load(list_at + place, mask=place < size, other=float("inf"))
        within = _bits(distances)[:, None] <= marks[None, :]
        if weighed:
            amounts += tl.sum(tl.where(within, _weights(distances)[:, None], 0), axis=0)
        else:
            amounts += tl.sum(within.to(tl.int32), axis=0)
    return amounts


@triton.jit
def _first_enough(
    list_at, size, before, wanted, low, high, weighed: tl.constexpr, ways: tl.constexpr, block: tl.constexpr
):
    """The least bits from `low` on within which a list, and what lies before it, hold what is wanted, or `high` where
    none below does.
    """
    way = tl.arange(0, ways)
    while low < high:
        step = (high - low) // ways + 1
        marks = tl.minimum(low + (way + 1) * step - 1, high)
        amounts = before + _amounts(list_at, size, marks, weighed, block)
        low += tl.sum((amounts.to(tl.float64) < wanted).to(tl.int32), axis=0) * step
        high = tl.minimum(low + step - 1, high)
    return tl.minimum(low, high)


@triton.jit
def _search(
    peaks_at,
    temperature_at,
    temperature_stride,
    top_k_at,
    top_k_stride,
    top_p_at,
    top_p_stride,
    min_p_at,
    min_p_stride,
    measured_at,
    lists_at,
    reaches_at,
    columns,
    ways: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    _peak, _temperature, random, reach = row_scale(
        row, peaks_at, temperature_at, temperature_stride, min_p_at, min_p_stride
    )
    top_k, top_p = _load_wishes(row, random, top_k_at, top_k_stride, top_p_at, top_p_stride)
    bits = _bits(reach)
    if (top_k > 0) | (top_p < 1):
        low, high, before, mass = _stretch(row, measured_at, top_k, top_p, ways)
        list_at = lists_at + row * columns
        size = tl.load(measured_at + row * _SLOTS + 2 * ways).to(tl.int32)
        if top_k > 0:
            is_whole = top_p < 1  # the list begins with the most likely
            counted = tl.where(is_whole, 0, before)
            last = _first_enough(list_at, size, counted, top_k.to(tl.float64), low, high, False, ways, block)
            bits = tl.minimum(bits, last)
            if is_whole:
                within = _amounts(list_at, size, tl.zeros([ways], dtype=tl.int32) + bits, True, block)
                wanted = top_p.to(tl.float64) * tl.max(within, axis=0).to(tl.float64)
                nearest = tl.zeros_like(bits)
                bits = _first_enough(list_at, size, tl.zeros_like(before), wanted, nearest, bits, True, ways, block)
        else:
            wanted = top_p.to(tl.float64) * mass.to(tl.float64)
            high = tl.minimum(high, bits)
            bits = _first_enough(list_at, size, before, wanted, tl.minimum(low, high), high, True, ways, block)
    tl.store(reaches_at + row, bits.to(tl.float32, bitcast=True))


def find_reaches(
    logits: Tensor,
    adjusted: Adjusted | None,
    peaks: Tensor,
    temperature: Tensor,
    top_k: Tensor | None,
    top_p: Tensor | None,
    min_p: Tensor | None,
) -> Tensor:
    """float32 [rows], for the rows' `peaks`: 0 for a greedy row, FAR at most."""
    rows, columns = logits.shape
    span = triton.cdiv(triton.cdiv(columns, _BLOCK), triton.cdiv(_PROGRAMS, rows)) * _BLOCK
    grid = (rows, triton.cdiv(columns, span))
    measured = torch.empty((rows, 2 * _WAYS + 1), dtype=torch.int64, device=logits.device)
    lists = torch.empty((rows, columns), dtype=torch.float32, device=logits.device)
    reaches = torch.empty(rows, dtype=torch.float32, device=logits.device)
    source = (logits, logits.stride(0), *values_of(adjusted))
    scale = (peaks, temperature, temperature.stride(0))
    wishes = (top_k, stride_of(top_k), top_p, stride_of(top_p))
    floor = (min_p, stride_of(min_p))
    shape = {"ways": _WAYS, "block": _BLOCK, "num_warps": _NUM_WARPS}
    sample = {"ways": _WAYS, "block": _SAMPLE, "turns": _TURNS, "num_warps": _NUM_WARPS}
    _aim[(rows,)](*source, *scale, *wishes, *floor, measured, columns, triton.cdiv(columns, _SAMPLE), **sample)
    _measure[grid](*source, *scale, *wishes, *floor, measured, columns, span, **shape)
    _gather[grid](*source, *scale, *wishes, measured, lists, columns, span, **shape)
    _search[(rows,)](*scale, *wishes, *floor, measured, lists, reaches, columns, **shape)
    return reaches


def stride_of(given: Tensor | None) -> int:
    """How far apart one value a row lies; settings are columns of a table."""
    return 0 if given is None else given.stride(0)
