"""token_logprobs on a GPU: several programs share a row, and rows that ask for nothing cost a number each.

- `_best_of_part` takes the most likely tokens of a part of the vocabulary, one after the other;
- `_weigh_part` weighs the part against the row's most likely token, and counts what comes before the given token;
- `_report_row` takes the most likely of all parts, and turns logits into logarithms of probabilities.
Weights are whole numbers, so no sum depends on how a row is shared.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.reference.softmax_weights import UNITS

_PART = 8192
"""Tokens of a program: 32 for each thread of 8 warps."""
_UNITS = tl.constexpr(UNITS)
_WORD = tl.constexpr(0xFFFFFFFF)
_LEAST = tl.constexpr(-(1 << 63))


@triton.jit
def _sort_keys(logits, token):
    """int64: of logits in their order, and of equal ones by token, the lower first."""
    bits = (logits + 0.0).to(tl.int32, bitcast=True)  # makes -0.0 the equal of 0.0
    ascending = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (ascending.to(tl.int64) << 32) | (_WORD - token.to(tl.int64))


@triton.jit
def _logit(key):
    ascending = (key >> 32).to(tl.int32)
    return (ascending ^ ((ascending >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def _load_keys(logits_at, token, columns):
    logits = tl.load(logits_at + token, mask=token < columns, other=0.0).to(tl.float32)
    return logits, tl.where(token < columns, _sort_keys(logits, token), _LEAST)


@triton.jit(do_not_specialize=["parts", "kept"])
def _best_of_part(logits_at, row_stride, counts_at, count_stride, best_at, columns, parts, kept, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    count = tl.load(counts_at + row * count_stride)
    if count >= 0:
        _, keys = _load_keys(logits_at + row * row_stride, part * block + tl.arange(0, block), columns)
        best_at += (row * parts + part) * kept
        for number in range(tl.minimum(tl.maximum(count, 1), kept)):
            best = tl.max(keys, axis=0)
            tl.store(best_at + number, best)
            keys = tl.where(keys == best, _LEAST, keys)


@triton.jit
def _peak(best_at, row, parts, kept, padded_parts: tl.constexpr):
    part = tl.arange(0, padded_parts)
    best = tl.load(best_at + (row * parts + part) * kept, mask=part < parts, other=_LEAST)
    return _logit(tl.max(best, axis=0))


@triton.jit(do_not_specialize=["parts", "kept"])
def _weigh_part(
    logits_at,
    row_stride,
    tokens_at,
    counts_at,
    count_stride,
    best_at,
    masses_at,  # int64 [rows, parts]
    before_at,  # int64 [rows, parts]
    columns,
    parts,
    kept,
    padded_parts: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    if tl.load(counts_at + row * count_stride) >= 0:
        peak = _peak(best_at, row, parts, kept, padded_parts)
        chosen = tl.load(tokens_at + row)
        chosen_key = _sort_keys(tl.load(logits_at + row * row_stride + chosen).to(tl.float32), chosen)
        token = part * block + tl.arange(0, block)
        logits, keys = _load_keys(logits_at + row * row_stride, token, columns)
        weights = tl.where(token < columns, (tl.exp(logits - peak) * _UNITS).to(tl.int64), 0)
        tl.store(masses_at + row * parts + part, tl.sum(weights, axis=0))
        tl.store(before_at + row * parts + part, tl.sum((keys >= chosen_key).to(tl.int64), axis=0))


@triton.jit(do_not_specialize=["parts", "kept", "most"])
def _report_row(
    logits_at,
    row_stride,
    tokens_at,
    counts_at,
    count_stride,
    best_at,
    masses_at,
    before_at,
    packed_at,  # int32 [rows, 1 + 2 * (1 + most)]
    parts,
    kept,
    most,
    padded_parts: tl.constexpr,
    padded_kept: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    count = tl.load(counts_at + row * count_stride)
    if count >= 0:
        part = tl.arange(0, padded_parts)
        mass = tl.sum(tl.load(masses_at + row * parts + part, mask=part < parts, other=0), axis=0)
        rank = tl.sum(tl.load(before_at + row * parts + part, mask=part < parts, other=0), axis=0)
        peak = _peak(best_at, row, parts, kept, padded_parts)
        log_mass = tl.log(mass.to(tl.float64) / _UNITS).to(tl.float32)
        chosen = tl.load(tokens_at + row)
        packed_at += row * (1 + 2 * (1 + most))
        ids_at, logprobs_at = packed_at + 1, packed_at + 1 + 1 + most
        logprob = (tl.load(logits_at + row * row_stride + chosen).to(tl.float32) - peak) - log_mass
        tl.store(packed_at, rank.to(tl.int32))
        tl.store(ids_at, chosen.to(tl.int32))
        tl.store(logprobs_at, logprob.to(tl.int32, bitcast=True))
        number = tl.arange(0, padded_kept)
        there = (part < parts)[:, None] & (number < tl.minimum(count, most))[None, :]
        best_at += row * parts * kept
        keys = tl.load(best_at + part[:, None] * kept + number[None, :], mask=there, other=_LEAST)
        keys = tl.reshape(keys, [padded_parts * padded_kept])
        for place in range(tl.minimum(count, most)):
            best = tl.max(keys, axis=0)
            tl.store(ids_at + 1 + place, ((best ^ -1) & _WORD).to(tl.int32))
            logprob = (_logit(best) - peak) - log_mass
            tl.store(logprobs_at + 1 + place, logprob.to(tl.int32, bitcast=True))
            keys = tl.where(keys == best, _LEAST, keys)


def token_logprobs(logits: Tensor, tokens: Tensor, counts: Tensor, most: int) -> Tensor:
    """Rows of logits are contiguous."""
    rows, columns = logits.shape
    device = logits.device
    assert logits.stride(-1) == 1, f"rows must be contiguous, strides are {logits.stride()}"
    assert logits.dtype != torch.float64, "keys are of 32 bits"
    parts, kept = triton.cdiv(columns, _PART), max(most, 1)
    packed = torch.empty((rows, 1 + 2 * (1 + most)), dtype=torch.int32, device=device)
    if not rows:
        return packed
    best = torch.empty((rows, parts, kept), dtype=torch.int64, device=device)
    masses, before = torch.empty((2, rows, parts), dtype=torch.int64, device=device)
    given, asked = (logits, logits.stride(0)), (counts, counts.stride(0))
    padded = triton.next_power_of_2(parts)
    shape = {"block": _PART, "num_warps": 8}
    _best_of_part[(rows, parts)](*given, *asked, best, columns, parts, kept, **shape)
    found = (best, masses, before)
    _weigh_part[(rows, parts)](*given, tokens, *asked, *found, columns, parts, kept, padded_parts=padded, **shape)
    sizes = {"padded_parts": padded, "padded_kept": triton.next_power_of_2(kept)}
    _report_row[(rows,)](*given, tokens, *asked, *found, packed, parts, kept, most, **sizes, num_warps=4)
    return packed
