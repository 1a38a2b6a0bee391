"""How far below the most likely token others may lie to be drawn: top-k, top-p and min-p as one number a row.

The *distance* of a token is (peak - logit) / temperature, at least 0. Each filter keeps the tokens up to some distance
(see `reference/top_k_top_p_min_p.py`), and the *reach* of a row is the least of these. No vocabulary is sorted:
- `_aim` looks at a sample of the row, and says between which two distances the reach probably lies;
- `_measure` weighs the row, and what lies within these two distances: with that, the reach lies between them for sure,
  or the sample misled. For top-k it lists the tokens up to the farther one instead;
- `_search` finds the exact distance in a list, usually a short one, by halving between the bits of floats.
A token that is drawn from all within the farther distance, and lies within the nearer one, is the one that the exact
reach gives too; hardly any row draws another. For those that do, the exact reach of top-p is found in a second round,
from a list of the tokens between the two, or of the whole row where the sample misled.
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
"""Tokens of a list that are compared at once; with twice as many, and twice the warps, searches took longer."""
_NUM_WARPS = 8
_PROGRAMS = 8 * 132
"""That measure a batch, or more: 8 on each of 132 multiprocessors."""

_FAR = tl.constexpr(FAR)
_UNITS = tl.constexpr(UNITS)
_LOW, _HIGH, _BEFORE, _UPTO, _TOTAL, _SIZE = (tl.constexpr(number) for number in range(6))
_SLOTS = tl.constexpr(6)
"""int64 of a row: the two distances, as bits; what weighs within each of them; what all weighs; a list's length."""


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
            doubt = 5.0 * tl.sqrt(tl.sum(tl.where(bits > middle, weights * weights, 0.0), axis=0))
            farthest = _nearest_with_little_behind(bits, weights, behind - doubt, turns)
            high = tl.maximum(high, tl.where(behind > doubt, farthest, _far_bits()))
            nearest = _nearest_with_little_behind(bits, weights, behind + doubt, turns)
            # what a search ends with that found nothing nearer: the distance of the most likely token
            is_first = nearest <= (_far_bits() >> turns) + 1
            low = tl.where(is_first, 0, tl.minimum(nearest, high))
        at = measured_at + row * _SLOTS
        tl.store(at + _LOW, low.to(tl.int64))
        tl.store(at + _HIGH, high.to(tl.int64))
        tl.store(at + _BEFORE, 0)
        tl.store(at + _UPTO, 0)
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
    again_at,
    columns,
    span,
    is_second: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    peak, temperature, random, reach = row_scale(
        row, peaks_at, temperature_at, temperature_stride, min_p_at, min_p_stride
    )
    top_k, top_p = load_wishes(row, random, top_k_at, top_k_stride, top_p_at, top_p_stride)
    if is_second:
        lists = (top_k == 0) & (top_p < 1) & (tl.load(again_at + row) != 0)
        weighs = False
    else:
        lists = top_k > 0
        weighs = (top_k == 0) & (top_p < 1)
    at = measured_at + row * _SLOTS
    low, high = tl.load(at + _LOW).to(tl.int32), tl.load(at + _HIGH).to(tl.int32)
    start = tl.program_id(1) * span
    if weighs:
        before, upto = tl.zeros([block], dtype=tl.int64), tl.zeros([block], dtype=tl.int64)
        total = tl.zeros([block], dtype=tl.int64)
        for offset in range(start, tl.minimum(start + span, columns), block):
            token = offset + tl.arange(0, block)
            distances = load_distances(
                logits_at, row_stride, values_at, which_at, row, token, columns, peak, temperature
            )
            weights = tl.where(distances <= reach, _weights(distances), 0)
            total += weights
            before += tl.where(_bits(distances) <= low, weights, 0)
            upto += tl.where(_bits(distances) <= high, weights, 0)
        tl.atomic_add(at + _BEFORE, tl.sum(before, axis=0), sem="relaxed")
        tl.atomic_add(at + _UPTO, tl.sum(upto, axis=0), sem="relaxed")
        tl.atomic_add(at + _TOTAL, tl.sum(total, axis=0), sem="relaxed")
    if lists:
        ones = tl.full([block], 1, dtype=tl.int64)
        for offset in range(start, tl.minimum(start + span, columns), block):
            token = offset + tl.arange(0, block)
            distances = load_distances(
                logits_at, row_stride, values_at, which_at, row, token, columns, peak, temperature
            )
            listed = (_bits(distances) > low) & (_bits(distances) <= high) & (distances >= 0)  # NaN is nowhere
            # in any order: nobody minds, since counts and masses have none
            place = tl.atomic_add(at + _SIZE + tl.zeros([block], dtype=tl.int32), ones, mask=listed, sem="relaxed")
            tl.store(lists_at + row * columns + place, distances, mask=listed)


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
def _list_all(
    list_at, logits_at, row_stride, values_at, which_at, row, columns, peak, temperature, block: tl.constexpr
):
    for offset in range(0, columns, block):
        token = offset + tl.arange(0, block)
        distances = load_distances(logits_at, row_stride, values_at, which_at, row, token, columns, peak, temperature)
        tl.store(list_at + token, tl.where(distances >= 0, distances, float("inf")), mask=token < columns)
    tl.debug_barrier()


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
    again_at,
    reaches_at,  # float32 [rows]
    sure_at,  # float32 [rows]: what is drawn within so much would be drawn with the exact reach too
    columns,
    is_second: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    peak, temperature, random, reach = row_scale(
        row, peaks_at, temperature_at, temperature_stride, min_p_at, min_p_stride
    )
    top_k, top_p = load_wishes(row, random, top_k_at, top_k_stride, top_p_at, top_p_stride)
    at = measured_at + row * _SLOTS
    low, high = tl.load(at + _LOW).to(tl.int32), tl.load(at + _HIGH).to(tl.int32)
    before, size = tl.load(at + _BEFORE), tl.load(at + _SIZE).to(tl.int32)
    wanted = top_p.to(tl.float64) * tl.load(at + _TOTAL).to(tl.float64)
    enough_before = before.to(tl.float64) >= wanted
    misled = enough_before | ((tl.load(at + _UPTO).to(tl.float64) < wanted) & (high < _bits(reach)))
    takes_first = enough_before & (low == 0)  # the most likely token alone weighs enough
    list_at = lists_at + row * columns
    bits = _bits(reach)
    if is_second:
        if (top_k == 0) & (top_p < 1) & (tl.load(again_at + row) != 0):
            if misled & (takes_first == 0):
                _list_all(list_at, logits_at, row_stride, values_at, which_at, row, columns, peak, temperature, block)
                low, high, before, size = low * 0 - 1, _far_bits(), before * 0, size * 0 + columns
            high = tl.minimum(high, bits)
            first = tl.minimum(low + 1, high)
            high = tl.where(takes_first, 0, high)
            first = tl.where(takes_first, 0, first)
            bits = _first_enough(list_at, size, before, wanted, first, high, True, block)
            tl.store(reaches_at + row, bits.to(tl.float32, bitcast=True))
    else:
        sure = tl.full([], float("inf"), dtype=tl.float32)
        if top_k > 0:
            if (size < top_k) & (high < _far_bits()):
                _list_all(list_at, logits_at, row_stride, values_at, which_at, row, columns, peak, temperature, block)
                high, size = _far_bits(), size * 0 + columns
            nearest = tl.zeros_like(high)
            last = _first_enough(list_at, size, before, top_k.to(tl.float64), nearest, high, False, block)
            bits = tl.minimum(bits, last)
            if top_p < 1:
                # all that top-k keeps is listed
                wanted = top_p.to(tl.float64) * _amount(list_at, size, bits, True, block).to(tl.float64)
                bits = _first_enough(list_at, size, before, wanted, nearest, bits, True, block)
        elif top_p < 1:
            bits = tl.where(takes_first, 0, tl.minimum(bits, high))
            sure = tl.where(misled, -1.0, tl.maximum(low, 0).to(tl.float32, bitcast=True))
            sure = tl.where(takes_first, float("inf"), sure)
        tl.store(reaches_at + row, bits.to(tl.float32, bitcast=True))
        tl.store(sure_at + row, sure)


class Reaches:
    """Of a batch, for the rows' `peaks`, and `masses` as `best_of_rows` finds them: 0 for a greedy row, FAR at most."""

    def __init__(
        self,
        logits: Tensor,
        adjusted: Adjusted | None,
        peaks: Tensor,
        masses: Tensor,
        temperature: Tensor,
        top_k: Tensor | None,
        top_p: Tensor | None,
        min_p: Tensor | None,
    ) -> None:
        rows, columns = logits.shape
        device = logits.device
        self._rows, self._columns = rows, columns
        self._span = triton.cdiv(triton.cdiv(columns, _PART), triton.cdiv(_PROGRAMS, rows)) * _PART
        self._measured = torch.empty((rows, _SLOTS.value), dtype=torch.int64, device=device)
        self._lists = torch.empty((rows, columns), dtype=torch.float32, device=device)
        self.values = torch.empty(rows, dtype=torch.float32, device=device)
        """float32 [rows]: no less than the reach."""
        self.sure = torch.empty(rows, dtype=torch.float32, device=device)
        """float32 [rows]: a token drawn within so much is the one that the exact reach gives."""
        self._source = (logits, logits.stride(0), *values_of(adjusted), peaks)
        wishes = (top_k, stride_of(top_k), top_p, stride_of(top_p), min_p, stride_of(min_p))
        self._asked = (temperature, temperature.stride(0), *wishes, self._measured)
        sample = {"near": _NEAR, "turns": _TURNS, "block": _SAMPLE, "num_warps": _NUM_WARPS}
        stride = triton.cdiv(columns, _SAMPLE)
        _aim[(rows,)](*self._source, masses, *self._asked, columns, stride, **sample)
        self._find(None)

    def make_exact(self, again: Tensor) -> None:
        """The values of those rows that are drawn again, bool [rows], are the reaches now."""
        self._find(again)

    def _find(self, again: Tensor | None) -> None:
        is_second, given = again is not None, (*self._source, *self._asked, self._lists, again)
        grid = (self._rows, triton.cdiv(self._columns, self._span))
        measure = {"is_second": is_second, "block": _PART, "num_warps": _NUM_WARPS}
        search = {"is_second": is_second, "block": _LISTED, "num_warps": _NUM_WARPS}
        _measure[grid](*given, self._columns, self._span, **measure)
        _search[(self._rows,)](*given, self.values, self.sure, self._columns, **search)


def stride_of(given: Tensor | None) -> int:
    """How far apart one value a row lies; settings are columns of a table."""
    return 0 if given is None else given.stride(0)
