"""How far below the most likely token others may lie to be drawn: top-k, top-p and min-p as one number a row.

The *distance* of a token is (peak - logit) / temperature, at least 0. Each filter keeps the tokens up to some distance
(see `reference/top_k_top_p_min_p.py`), and the *reach* of a row is the least of these. No vocabulary is sorted:
- `_measure` counts and weighs, for each row, what lies within 16 fixed distances;
- `_gather` lists the distances up to the first of them that is far enough for the row's top-k (or else top-p);
- `_search` finds in that list, usually a short one, the exact distance: 16 ways in each turn, by the bits of floats.
Weights are whole numbers, as in `reference/softmax_weights.py`, so no sum depends on how a row is shared.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.reference.softmax_weights import UNITS
from quire.ops.triton.argmax import BLOCK, NUM_WARPS, share_rows

FAR = 28.0
"""No reach is larger. A token so far away weighs nothing, exp(-28) < 2**-40, and no noise (see `gumbel`) brings it
before the most likely: for that, 22.88 + 2.82 is too little."""

_WAYS = 16
"""Distances to which a pass compares every token. More would take longer than the row takes to arrive."""
_WIDE_BLOCK, _WIDE_WARPS = 512, 8
"""Tokens compared at once. With _WAYS for each they are 32 whole numbers of 64 bits a thread, which stay in registers;
64 do not, as compiled for Hopper. The block divides that of `argmax`, whose multiples programs share rows by."""

_FAR = tl.constexpr(FAR)
_UNITS = tl.constexpr(UNITS)


@triton.jit
def row_scale(
    row, peaks_at, parts, temperature_at, temperature_stride, min_p_at, min_p_stride, padded_parts: tl.constexpr
):
    """Of a row: the peak, what to divide by, whether its draw is random, and its reach by min-p alone."""
    part = tl.arange(0, padded_parts)
    peak = tl.max(tl.load(peaks_at + row * parts + part, mask=part < parts, other=float("-inf")), axis=0)
    temperature = tl.load(temperature_at + row * temperature_stride)
    random = temperature > 0
    reach = tl.where(random, _FAR, 0.0)  # of a greedy row, only what is as likely as the best
    if min_p_at is not None:
        min_p = tl.load(min_p_at + row * min_p_stride)
        reach = tl.minimum(reach, tl.abs(tl.log(tl.maximum(min_p, 1e-30))))  # 0 keeps all, and has no logarithm
    return peak, tl.where(random, temperature, 1.0), random, reach


@triton.jit
def load_distances(logits_at, token, columns, peak, temperature):
    """Of the row at `logits_at`; inf beyond its columns. Rounded as the reference rounds, so that ties are the same."""
    logits = tl.load(logits_at + token, mask=token < columns, other=float("-inf")).to(tl.float32)
    return tl.div_rn(peak - logits, temperature)


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
def _mark(way, ways: tl.constexpr):
    """The fixed distances, closer to each other where few tokens lie; the last is FAR. Exact in float32."""
    place = (way + 1).to(tl.float32)
    return place * place * (_FAR / (ways * ways))


@triton.jit
def _bits(distance):
    """Whole numbers in the order of the distances, which are not negative."""
    return distance.to(tl.int32, bitcast=True)


@triton.jit
def _stretch(row, measured_at, top_k, top_p, ways: tl.constexpr):
    """Between which bits the reach by top-k lies, or without one that by top-p; and the mass of the whole row."""
    way = tl.arange(0, ways)
    measured_at += row * (2 * ways + 1)
    counts = tl.load(measured_at + way)
    masses = tl.load(measured_at + ways + way)
    mass = tl.max(masses, axis=0)
    wanted = tl.where(top_k > 0, top_k.to(tl.float64), top_p.to(tl.float64) * mass.to(tl.float64))
    amounts = tl.where(top_k > 0, counts, masses).to(tl.float64)
    first = tl.minimum(tl.sum((amounts < wanted).to(tl.int32), axis=0), ways - 1)
    low = tl.where(first > 0, _bits(_mark(first - 1, ways)) + 1, 0)
    return low, _bits(_mark(first, ways)), mass


@triton.jit(do_not_specialize=["span", "parts"])
def _measure(
    logits_at,
    row_stride,
    peaks_at,
    temperature_at,
    temperature_stride,
    top_k_at,
    top_k_stride,
    top_p_at,
    top_p_stride,
    min_p_at,
    min_p_stride,
    measured_at,  # int64 [rows, 2 * ways + 1], of zeros: counts, masses, and the length of the list to come
    columns,
    span,
    parts,
    padded_parts: tl.constexpr,
    ways: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    peak, temperature, random, reach = row_scale(
        row, peaks_at, parts, temperature_at, temperature_stride, min_p_at, min_p_stride, padded_parts
    )
    top_k, top_p = _load_wishes(row, random, top_k_at, top_k_stride, top_p_at, top_p_stride)
    way = tl.arange(0, ways)
    marks = _mark(way, ways)
    counts = tl.zeros([ways], dtype=tl.int64)
    masses = tl.zeros([ways], dtype=tl.int64)
    start = tl.program_id(1) * span
    stop = tl.where((top_k > 0) | (top_p < 1), tl.minimum(start + span, columns), start)
    for offset in range(start, stop, block):
        distances = load_distances(
            logits_at + row * row_stride, offset + tl.arange(0, block), columns, peak, temperature
        )
        within = distances[:, None] <= marks[None, :]
        if top_k_at is not None:
            counts += tl.sum(within.to(tl.int32), axis=0)
        if top_p_at is not None:
            weights = tl.where(distances <= reach, _weights(distances), 0)
            masses += tl.sum(tl.where(within, weights[:, None], 0), axis=0)
    measured_at += row * (2 * ways + 1)
    some = way < tl.where(stop > start, ways, 0)  # a row that wants nothing has no sums
    if top_k_at is not None:
        tl.atomic_add(measured_at + way, counts, mask=some, sem="relaxed")
    if top_p_at is not None:
        tl.atomic_add(measured_at + ways + way, masses, mask=some, sem="relaxed")


@triton.jit(do_not_specialize=["span", "parts"])
def _gather(
    logits_at,
    row_stride,
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
    parts,
    padded_parts: tl.constexpr,
    ways: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    peak, temperature, random, _ = row_scale(
        row, peaks_at, parts, temperature_at, temperature_stride, None, 0, padded_parts
    )
    top_k, top_p = _load_wishes(row, random, top_k_at, top_k_stride, top_p_at, top_p_stride)
    _, high, _ = _stretch(row, measured_at, top_k, top_p, ways)
    farthest = high.to(tl.float32, bitcast=True)
    size_at = measured_at + row * (2 * ways + 1) + 2 * ways
    start = tl.program_id(1) * span
    stop = tl.where((top_k > 0) | (top_p < 1), tl.minimum(start + span, columns), start)
    for offset in range(start, stop, block):
        distances = load_distances(
            logits_at + row * row_stride, offset + tl.arange(0, block), columns, peak, temperature
        )
        within = distances <= farthest  # as floats: NaN is nowhere
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
def _first_enough(list_at, size, wanted, low, high, weighed: tl.constexpr, ways: tl.constexpr, block: tl.constexpr):
    """The least bits from `low` on within which a list holds what is wanted, or `high` where none below does."""
    way = tl.arange(0, ways)
    while low < high:
        step = (high - low) // ways + 1
        marks = tl.minimum(low + (way + 1) * step - 1, high)
        amounts = _amounts(list_at, size, marks, weighed, block)
        low += tl.sum((amounts.to(tl.float64) < wanted).to(tl.int32), axis=0) * step
        high = tl.minimum(low + step - 1, high)
    return tl.minimum(low, high)


@triton.jit(do_not_specialize=["parts"])
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
    parts,
    padded_parts: tl.constexpr,
    ways: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    _, _, random, reach = row_scale(
        row, peaks_at, parts, temperature_at, temperature_stride, min_p_at, min_p_stride, padded_parts
    )
    top_k, top_p = _load_wishes(row, random, top_k_at, top_k_stride, top_p_at, top_p_stride)
    low, high, mass = _stretch(row, measured_at, top_k, top_p, ways)
    list_at = lists_at + row * columns
    size = tl.load(measured_at + row * (2 * ways + 1) + 2 * ways).to(tl.int32)
    bits = _bits(reach)
    if top_k_at is not None:
        # a search from `high` to `high` takes no turn
        last = _first_enough(
            list_at, size, top_k.to(tl.float64), tl.where(top_k > 0, low, high), high, False, ways, block
        )
        bits = tl.where(top_k > 0, tl.minimum(bits, last), bits)
    if top_p_at is not None:
        if top_k_at is not None:
            # the survivors of top-k are all in the list, and any of them may be the last of top-p
            marks = tl.zeros([ways], dtype=tl.int32) + bits
            within = _amounts(list_at, tl.where((top_k > 0) & (top_p < 1), size, 0), marks, True, block)
            mass = tl.where(top_k > 0, tl.max(within, axis=0), mass)
            low = tl.where(top_k > 0, 0, low)
        high = tl.minimum(high, bits)
        wanted = top_p.to(tl.float64) * mass.to(tl.float64)
        last = _first_enough(list_at, size, wanted, tl.where(top_p < 1, low, high), high, True, ways, block)
        bits = tl.where(top_p < 1, last, bits)
    tl.store(reaches_at + row, bits.to(tl.float32, bitcast=True))


def find_reaches(
    logits: Tensor,
    peaks: Tensor,
    temperature: Tensor,
    top_k: Tensor | None,
    top_p: Tensor | None,
    min_p: Tensor | None,
) -> Tensor:
    """float32 [rows], for `peaks` of parts as `argmax` finds them: 0 for a greedy row, FAR at most."""
    rows, columns = logits.shape
    parts, span = share_rows(rows, columns)
    measured = torch.zeros((rows, 2 * _WAYS + 1), dtype=torch.int64, device=logits.device)
    lists = torch.empty((rows, columns), dtype=torch.float32, device=logits.device)
    reaches = torch.empty(rows, dtype=torch.float32, device=logits.device)
    scale = (peaks, temperature, temperature.stride(0))
    wishes = (top_k, stride_of(top_k), top_p, stride_of(top_p))
    floor = (min_p, stride_of(min_p))
    sizes = {"padded_parts": triton.next_power_of_2(parts), "ways": _WAYS}
    wide = sizes | {"block": _WIDE_BLOCK, "num_warps": _WIDE_WARPS}
    narrow = sizes | {"block": BLOCK, "num_warps": NUM_WARPS}
    row_of_logits = (logits, logits.stride(0))
    _measure[(rows, parts)](*row_of_logits, *scale, *wishes, *floor, measured, columns, span, parts, **wide)
    _gather[(rows, parts)](*row_of_logits, *scale, *wishes, measured, lists, columns, span, parts, **narrow)
    _search[(rows,)](*scale, *wishes, *floor, measured, lists, reaches, columns, parts, **wide)
    return reaches


def stride_of(given: Tensor | None) -> int:
    """How far apart one value a row lies; settings are columns of a table."""
    return 0 if given is None else given.stride(0)
