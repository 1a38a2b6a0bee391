"""argmax on a GPU: several programs share a row's columns, and what each found best meets in a second kernel.

One program a row would leave most of the GPU idle: a batch may have one row, and a row has up to 262144 columns. The
part of a program is all loaded at once: more loads on their way are what it takes to be as fast as memory.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.adjustments import Adjusted

PART = 4096
"""Columns of a row that a program takes: 16 for each thread of 8 warps. A multiple of 4, since noise comes in fours."""
NUM_WARPS = 8


@triton.jit
def load_logits(logits_at, row_stride, values_at, which_at, row, token, columns):
    """float32, or float64 of such: a row as it was adjusted, where it was; -inf beyond its columns."""
    there = token < columns
    if which_at is None:
        logits = tl.load(logits_at + row * row_stride + token, mask=there, other=float("-inf"))
        if logits_at.dtype.element_ty != tl.float64:
            logits = logits.to(tl.float32)
    elif tl.load(which_at + row) != 0:
        logits = tl.load(values_at + row * columns + token, mask=there, other=float("-inf"))
    else:
        logits = tl.load(logits_at + row * row_stride + token, mask=there, other=float("-inf")).to(tl.float32)
    return logits


@triton.jit
def first_largest(values, tokens):
    """The largest of `values`, none of them NaN, and the lowest of the tokens that have it."""
    largest = tl.max(values, axis=0)
    return largest, tl.min(tl.where(values == largest, tokens, 2147483647), axis=0)


@triton.jit
def _inverse(temperature_at, temperature_stride, row):
    temperature = tl.load(temperature_at + row * temperature_stride)
    return 1.0 / tl.where(temperature > 0, temperature, 1.0)


@triton.jit(do_not_specialize=["parts"])
def _best_of_part(
    logits_at,
    row_stride,
    values_at,
    which_at,
    temperature_at,
    temperature_stride,
    peaks_at,
    tokens_at,
    masses_at,
    columns,
    parts,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    token = part * block + tl.arange(0, block)
    logits = load_logits(logits_at, row_stride, values_at, which_at, row, token, columns)
    logits = tl.where(logits < float("inf"), logits, float("inf"))  # NaN too: either way the row has none
    peak, first = first_largest(logits, token)
    tl.store(peaks_at + row * parts + part, peak)
    tl.store(tokens_at + row * parts + part, first)
    if temperature_at is not None:
        scale = _inverse(temperature_at, temperature_stride, row)
        weights = tl.where(logits > float("-inf"), tl.exp((logits - peak).to(tl.float32) * scale), 0.0)
        tl.store(masses_at + row * parts + part, tl.sum(weights, axis=0))


@triton.jit(do_not_specialize=["parts"])
def _best_of_row(
    part_peaks_at,
    part_tokens_at,
    part_masses_at,
    temperature_at,
    temperature_stride,
    peaks_at,
    tokens_at,
    none_at,
    masses_at,
    parts,
    padded_parts: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, padded_parts)
    there = part < parts
    peaks = tl.load(part_peaks_at + row * parts + part, mask=there, other=float("-inf"))
    peak, token = first_largest(peaks, tl.load(part_tokens_at + row * parts + part, mask=there, other=2147483647))
    none = (peak == float("inf")) | (peak == float("-inf"))
    tl.store(peaks_at + row, peak)
    tl.store(tokens_at + row, tl.where(none, 0, token).to(tl.int64))
    tl.store(none_at + row, none)
    if temperature_at is not None:
        scale = _inverse(temperature_at, temperature_stride, row)
        masses = tl.load(part_masses_at + row * parts + part, mask=there, other=0.0)
        masses = tl.where(peaks > float("-inf"), masses * tl.exp((peaks - peak).to(tl.float32) * scale), 0.0)
        tl.store(masses_at + row, tl.sum(masses, axis=0))


def best_of_rows(
    logits: Tensor, adjusted: Adjusted | None, temperature: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of each row the largest logit, its lowest token, int64, whether there is none, as `argmax` says, and with a
    temperature what all tokens weigh beside the most likely one: float32, by and large.
    """
    assert logits.stride(-1) == 1, f"rows must be contiguous, strides are {logits.stride()}"
    rows, columns = logits.shape
    parts, device = triton.cdiv(columns, PART), logits.device
    wide = torch.promote_types(logits.dtype, torch.float32)
    part_peaks = torch.empty((rows, parts), dtype=wide, device=device)
    part_tokens = torch.empty((rows, parts), dtype=torch.int32, device=device)
    part_masses = torch.empty((rows, parts), dtype=torch.float32, device=device)
    peaks = torch.empty(rows, dtype=wide, device=device)
    tokens = torch.empty(rows, dtype=torch.int64, device=device)
    none = torch.empty(rows, dtype=torch.bool, device=device)
    masses = torch.empty(rows, dtype=torch.float32, device=device)
    if rows:
        given = (logits, logits.stride(0), *values_of(adjusted))
        scale = (temperature, 0 if temperature is None else temperature.stride(0))
        found = (part_peaks, part_tokens, part_masses)
        _best_of_part[(rows, parts)](*given, *scale, *found, columns, parts, block=PART, num_warps=NUM_WARPS)
        best = (peaks, tokens, none, masses)
        padded = triton.next_power_of_2(parts)
        _best_of_row[(rows,)](*found, *scale, *best, parts, padded_parts=padded, num_warps=1)
    return peaks, tokens, none, masses


def values_of(adjusted: Adjusted | None) -> tuple[Tensor | None, Tensor | None]:
    """As `load_logits` takes them."""
    return (None, None) if adjusted is None else (adjusted.values, adjusted.which)


def argmax(logits: Tensor, adjusted: Adjusted | None = None) -> tuple[Tensor, Tensor]:
    """logits: [rows, vocabulary] of any float type, with contiguous rows."""
    _, tokens, none, _ = best_of_rows(logits, adjusted)
    return tokens, none
