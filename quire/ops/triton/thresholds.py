"""How far below the most likely token others may lie to be drawn: top-k, top-p and min-p as one number a row.

The *distance* of a token is (peak - logit) / temperature, at least 0. Each filter keeps the tokens up to some distance
(see `reference/top_k_top_p_min_p.py`), and the *reach* of a row is the least of these. No vocabulary is sorted, and all
of it is read once:
- `_aim` looks at a sample of the row, and says between which two distances the reach probably lies;
- `_measure` lists the tokens between them, and weighs the row and what lies before them;
- `_search` finds the exact distance in that list, usually a short one, by halving between the bits of floats. It sees
  where a sample misled, and then searches the whole row.
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

_SAMPLE = 2048
"""Tokens of a sample: 8 for each thread of 8 warps."""
_TURNS = 17
"""Halvings in the search of a sample, which ends within some thousandths."""
_NEAR = 8
"""Tokens of a sample that lie within the list of a row at least: what has most of the mass may be in no sample."""
_PART = 2048
"""Tokens that are measured at once: 8 for each thread of 8 warps."""
_LISTED = 4096
"""Tokens of a list that are compared at once."""
_NUM_WARPS = 8
_PROGRAMS = 8 * 132
"""That measure a batch, or more: 8 on each of 132 multiprocessors."""

_FAR = tl.constexpr(FAR)
_UNITS = tl.constexpr(UNITS)
_LOW, _HIGH, _BEFORE, _TOTAL, _SIZE = (tl.constexpr(number) for number in range(5))
_SLOTS = tl.constexpr(5)
"""int64 of a row: the two distances, as bits; what weighs before the list; what all weighs; the list's length."""


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
def load_wishes(row, random, top_k_at, top_k_stride, top_p_at, top_p_stride):
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
def _far_bits():
    return _bits(tl.full([], _FAR, dtype=tl.float32))


@triton.jit
def _nearest_with_little_behind(bits, weights, most, turns: tl.constexpr):
    """About the least distance, in bits, behind which a sample weighs `most` at the most; FAR at the farthest."""
    low, high = tl.zeros([], dtype=tl.int32) - 1, _far_bits()
    for _turn in range(turns):
        middle = low + (high - low) // 2
        behind = tl.sum(tl.where(bits > middle, weights, 0.0), axis=0)
        low = tl.where(behind > most, middle, low)
        high = tl.where(behind > most, high, middle)
    return high


@triton.jit
def _aim(
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
    measured_at,
    columns,
    stride,
    near: tl.constexpr,
    turns: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    peak, temperature, random, reach = row_scale(
        row, peaks_at, temperature_at, temperature_stride, min_p_at, min_p_stride
    )
    top_k, top_p = load_wishes(row, random, top_k_at, top_k_stride, top_p_at, top_p_stride)
    if (top_k > 0) | (top_p < 1):
        token = tl.arange(0, block) * stride
        distances = load_distances(logits_at, row_stride, values_at, which_at, row, token, columns, peak, temperature)
        bits = _bits(distances)
        is_there = (distances < float("inf")).to(tl.float32)
        count = tl.sum(is_there, axis=0)
        low = tl.zeros([], dtype=tl.int32) - 1
        nearby = tl.zeros([], dtype=tl.float32) + near
        if top_k > 0:
            share = top_k.to(tl.float32) / stride
            nearby += share + 4.0 * tl.sqrt(share)
        high = _nearest_with_little_behind(bits, is_there, count - nearby, turns)
        if (top_k == 0) & (top_p < 1):
            # What lies behind the reach are many tokens of little weight, of which a sample says how much they weigh:
            # the row's mass is known, however few tokens have most of it.
            weights = tl.where(distances <= reach, tl.exp(-distances), 0.0)
            cut = tl.sum(tl.where((distances > reach) & (is_there > 0), tl.exp(-distances), 0.0), axis=0)
            behind = (1.0 - top_p) * (tl.load(masses_at + row) / stride - cut)
            middle = _nearest_with_little_behind(bits, weights, behind, turns)
            doubt = 3.0 * tl.sqrt(tl.sum(tl.where(bits > middle, weights * weights, 0.0), axis=0))
            farthest = _nearest_with_little_behind(bits, weights, behind - doubt, turns)
            high = tl.maximum(high, tl.where(behind > doubt, farthest, _far_bits()))
            nearest = _nearest_with_little_behind(bits, weights, behind + doubt, turns)
            low = tl.minimum(nearest, high)
        at = measured_at + row * _SLOTS
        tl.store(at + _LOW, low.to(tl.int64))
        tl.store(at + _HIGH, high.to(tl.int64))
        tl.store(at + _BEFORE, 0)
        tl.store(at + _TOTAL, 0)
        tl.store(at + _SIZE, 0)


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
    lists_at,  # float32 [rows, columns]
    columns,
    span,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    peak, temperature, random, reach = row_scale(
        row, peaks_at, temperature_at, temperature_stride, min_p_at, min_p_stride
    )
    top_k, top_p = load_wishes(row, random, top_k_at, top_k_stride, top_p_at, top_p_stride)
    if (top_k > 0) | (top_p < 1):
        at = measured_at + row * _SLOTS
        low, high = tl.load(at + _LOW).to(tl.int32), tl.load(at + _HIGH).to(tl.int32)
        before, total = tl.zeros([block], dtype=tl.int64), tl.zeros([block], dtype=tl.int64)
        ones = tl.full([block], 1, dtype=tl.int64)
        start = tl.program_id(1) * span
        for offset in range(start, tl.minimum(start + span, columns), block):
            token = offset + tl.arange(0, block)
            distances = load_distances(
                logits_at, row_stride, values_at, which_at, row, token, columns, peak, temperature
            )
            bits = _bits(distances)
            if top_k == 0:
                weights = tl.where(distances <= reach, _weights(distances), 0)
                total += weights
                before += tl.where(bits <= low, weights, 0)
            listed = (bits > low) & (bits <= high) & (distances >= 0)  # NaN is nowhere
            # in any order: nobody minds, since counts and masses have none
            place = tl.atomic_add(at + _SIZE + tl.zeros([block], dtype=tl.int32), ones, mask=listed, sem="relaxed")
            tl.store(lists_at + row * columns + place, distances, mask=listed)
        if top_k == 0:
            tl.atomic_add(at + _BEFORE, tl.sum(before, axis=0), sem="relaxed")
            tl.atomic_add(at + _TOTAL, tl.sum(total, axis=0), sem="relaxed")


@triton.jit
def _amount(list_at, size, mark, weighed: tl.constexpr, block: tl.constexpr):
    """int64: how many of a list lie within `mark`, in bits; or how much they weigh."""
    amounts = tl.zeros([block], dtype=tl.int64)
    for offset in range(0, size, block):
        place = offset + tl.arange(0, block)
        distances = tl.load(list_at + place, mask=place < size, other=float("inf"))
        within = _bits(distances) <= mark
        if weighed:
            amounts += tl.where(within, _weights(distances), 0)
        else:
            amounts += within.to(tl.int64)
    return tl.sum(amounts, axis=0)


@triton.jit
def _first_enough(list_at, size, before, wanted, low, high, weighed: tl.constexpr, block: tl.constexpr):
    """The least bits from `low` on within which a list, and what lies before it, hold what is wanted, or `high` where
    none below does.
    """
    while low < high:
        middle = low + (high - low) // 2
        enough = (before + _amount(list_at, size, middle, weighed, block)).to(tl.float64) >= wanted
        high = tl.where(enough, middle, high)
        low = tl.where(enough, low, middle + 1)
    return low


@triton.jit
def _search(
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
    lists_at,
    reaches_at,
    columns,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    peak, temperature, random, reach = row_scale(
        row, peaks_at, temperature_at, temperature_stride, min_p_at, min_p_stride
    )
    top_k, top_p = load_wishes(row, random, top_k_at, top_k_stride, top_p_at, top_p_stride)
    bits = _bits(reach)
    if (top_k > 0) | (top_p < 1):
        at = measured_at + row * _SLOTS
        low, high = tl.load(at + _LOW).to(tl.int32) + 1, tl.load(at + _HIGH).to(tl.int32)
        before, total, size = tl.load(at + _BEFORE), tl.load(at + _TOTAL), tl.load(at + _SIZE).to(tl.int32)
        list_at = lists_at + row * columns
        wanted_mass = top_p.to(tl.float64) * total.to(tl.float64)
        if top_k > 0:
            misled = (size < top_k) & (high < _far_bits())
        else:
            is_short = (before + _amount(list_at, size, high, True, block)).to(tl.float64) < wanted_mass
            misled = (before.to(tl.float64) >= wanted_mass) | (is_short & (high < tl.minimum(_far_bits(), bits)))
        if misled:
            for offset in range(0, columns, block):
                token = offset + tl.arange(0, block)
                distances = load_distances(
                    logits_at, row_stride, values_at, which_at, row, token, columns, peak, temperature
                )
                tl.store(list_at + token, tl.where(distances >= 0, distances, float("inf")), mask=token < columns)
            tl.debug_barrier()
            low, high, before, size = (
                tl.zeros_like(low),
                _far_bits(),
                tl.zeros_like(before),
                tl.zeros_like(size) + columns,
            )
        if top_k > 0:
            last = _first_enough(list_at, size, before, top_k.to(tl.float64), low, high, False, block)
            bits = tl.minimum(bits, last)
            if top_p < 1:
                # all that top-k keeps is listed
                wanted_mass = top_p.to(tl.float64) * _amount(list_at, size, bits, True, block).to(tl.float64)
                bits = _first_enough(list_at, size, before, wanted_mass, tl.zeros_like(low), bits, True, block)
        else:
            high = tl.minimum(high, bits)
            bits = _first_enough(list_at, size, before, wanted_mass, tl.minimum(low, high), high, True, block)
    tl.store(reaches_at + row, bits.to(tl.float32, bitcast=True))


def find_reaches(
    logits: Tensor,
    adjusted: Adjusted | None,
    peaks: Tensor,
    masses: Tensor,
    temperature: Tensor,
    top_k: Tensor | None,
    top_p: Tensor | None,
    min_p: Tensor | None,
) -> Tensor:
    """float32 [rows], for the rows' `peaks`, and `masses` as `best_of_rows` finds them: 0 for a greedy row, FAR at
    most.
    """
    rows, columns = logits.shape
    span = triton.cdiv(triton.cdiv(columns, _PART), triton.cdiv(_PROGRAMS, rows)) * _PART
    grid = (rows, triton.cdiv(columns, span))
    measured = torch.empty((rows, _SLOTS.value), dtype=torch.int64, device=logits.device)
    lists = torch.empty((rows, columns), dtype=torch.float32, device=logits.device)
    reaches = torch.empty(rows, dtype=torch.float32, device=logits.device)
    source = (logits, logits.stride(0), *values_of(adjusted), peaks)
    wishes = (top_k, stride_of(top_k), top_p, stride_of(top_p), min_p, stride_of(min_p))
    asked = (temperature, temperature.stride(0), *wishes, measured)
    sample = {"near": _NEAR, "turns": _TURNS, "block": _SAMPLE, "num_warps": _NUM_WARPS}
    _aim[(rows,)](*source, masses, *asked, columns, triton.cdiv(columns, _SAMPLE), **sample)
    _measure[grid](*source, *asked, lists, columns, span, block=_PART, num_warps=_NUM_WARPS)
    _search[(rows,)](*source, *asked, lists, reaches, columns, block=_LISTED, num_warps=_NUM_WARPS)
    return reaches


def stride_of(given: Tensor | None) -> int:
    """How far apart one value a row lies; settings are columns of a table."""
    return 0 if given is None else given.stride(0)
