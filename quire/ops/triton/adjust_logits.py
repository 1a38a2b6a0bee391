"""adjust_logits on a GPU: rows that ask for nothing cost a few numbers each, and are not copied.

Two kernels: the first goes over the vocabulary of those rows that ask for something, and leaves them in float32 (masks
and penalties); the second corrects the few tokens that requests name (biases, ends, bad words). Both compute a logit
from the model's own, so neither depends on what the other wrote. What `Adjustments` holds is read when the kernels run.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.adjustments import OUTPUT_UNIT, Adjusted, Adjustments

_BLOCK = 4096
"""Tokens of a program, 16 for each thread of 8 warps."""
_LISTED = 128
"""Named tokens, or bad words, at once: one for each thread of 4 warps."""
_OUTPUT_UNIT = tl.constexpr(OUTPUT_UNIT)
_OUT = tl.constexpr(float("-inf"))


@triton.jit
def _whole_numbers(addresses_at, row):
    """The row's tensor of int32, and whether it has one."""
    address = tl.load(addresses_at + row)
    return address.to(tl.pointer_type(tl.int32)), address != 0


@triton.jit
def _asks(row, position, is_masked_at, allowed_at, counts_at, biases_at, ends_at, first_end_at, words_at):
    """Whether anything is to be changed about this row."""
    asks = (tl.load(is_masked_at + row) != 0) | (tl.load(allowed_at + row) != 0) | (tl.load(counts_at + row) != 0)
    asks = asks | (tl.load(biases_at + row) != 0) | (tl.load(words_at + row) != 0)
    return asks | ((tl.load(ends_at + row) != 0) & (position < tl.load(first_end_at + row)))


@triton.jit
def _adjusted(raw, bias, token, there, row, masks_at, masks_stride, is_masked_at, allowed_at, counts_at, penalties_at):
    """A row's logits of these tokens, with what is added to them."""
    value = raw + bias
    counts, is_counted = _whole_numbers(counts_at, row)
    if is_counted:
        count = tl.load(counts + token, mask=there, other=0)
        repetition = tl.load(penalties_at + 3 * row)
        presence = tl.load(penalties_at + 3 * row + 1)
        frequency = tl.load(penalties_at + 3 * row + 2)
        factor = tl.where(count > 0, repetition, 1.0)
        value = tl.where(value > 0, tl.div_rn(value, factor), value * factor)
        outputs = count // _OUTPUT_UNIT
        value = value - frequency * outputs.to(tl.float32)
        value = value - tl.where(outputs > 0, presence, 0.0)
    word, bit = token // 32, token % 32
    if tl.load(is_masked_at + row) != 0:
        mask = tl.load(masks_at + row * masks_stride + word, mask=there, other=-1)
        value = tl.where(((mask >> bit) & 1) == 0, _OUT, value)
    allowed, is_limited = _whole_numbers(allowed_at, row)
    if is_limited:
        mask = tl.load(allowed + word, mask=there, other=-1)
        value = tl.where(((mask >> bit) & 1) == 0, _OUT, value)
    return tl.where(raw < float("inf"), value, float("inf"))  # NaN too


@triton.jit
def _over_vocabulary(
    logits_at,
    logits_stride,
    values_at,
    which_at,
    rows_at,
    positions_at,
    masks_at,
    masks_stride,
    is_masked_at,
    allowed_at,
    counts_at,
    penalties_at,
    biases_at,
    ends_at,
    first_end_at,
    words_at,
    columns,
    block: tl.constexpr,
):
    place = tl.program_id(0).to(tl.int64)
    row = tl.load(rows_at + place)
    position = tl.load(positions_at + place)
    asks = _asks(row, position, is_masked_at, allowed_at, counts_at, biases_at, ends_at, first_end_at, words_at)
    if tl.program_id(1) == 0:
        tl.store(which_at + place, asks)
    if asks:
        token = tl.program_id(1) * block + tl.arange(0, block)
        there = token < columns
        raw = tl.load(logits_at + place * logits_stride + token, mask=there, other=0.0).to(tl.float32)
        value = _adjusted(
            raw, 0.0, token, there, row, masks_at, masks_stride, is_masked_at, allowed_at, counts_at, penalties_at
        )
        tl.store(values_at + place * columns + token, value, mask=there)


@triton.jit
def _leave_out(logits_at, values_at, token, there):
    """Of tokens that are there: none can be drawn, unless the model's logit is broken."""
    raw = tl.load(logits_at + token, mask=there, other=0.0).to(tl.float32)
    tl.store(values_at + token, _OUT, mask=there & (raw < float("inf")))


@triton.jit
def _named_tokens(
    logits_at,
    logits_stride,
    values_at,
    rows_at,
    positions_at,
    masks_at,
    masks_stride,
    is_masked_at,
    allowed_at,
    counts_at,
    penalties_at,
    biases_at,
    ends_at,
    first_end_at,
    words_at,
    history_at,
    history_stride,
    columns,
    block: tl.constexpr,
):
    place = tl.program_id(0).to(tl.int64)
    row = tl.load(rows_at + place)
    position = tl.load(positions_at + place)
    logits_at += place * logits_stride
    values_at += place * columns
    lane = tl.arange(0, block)
    biases, is_biased = _whole_numbers(biases_at, row)
    if is_biased:
        number = tl.load(biases)
        for offset in range(0, number, block):
            there = offset + lane < number
            token = tl.load(biases + 1 + offset + lane, mask=there, other=0)
            bias = tl.load(biases + 1 + number + offset + lane, mask=there, other=0).to(tl.float32, bitcast=True)
            raw = tl.load(logits_at + token, mask=there, other=0.0).to(tl.float32)
            value = _adjusted(
                raw, bias, token, there, row, masks_at, masks_stride, is_masked_at, allowed_at, counts_at, penalties_at
            )
            tl.store(values_at + token, value, mask=there)
        tl.debug_barrier()  # what follows may leave out a token that has a bias
    ends, has_ends = _whole_numbers(ends_at, row)
    if has_ends & (position < tl.load(first_end_at + row)):
        number = tl.load(ends)
        for offset in range(0, number, block):
            there = offset + lane < number
            _leave_out(logits_at, values_at, tl.load(ends + 1 + offset + lane, mask=there, other=0), there)
    words, has_words = _whole_numbers(words_at, row)
    if has_words:
        number, most = tl.load(words), tl.load(words + 1)
        written = position - tl.load(words + 2)  # tokens of the output
        for offset in range(0, number, block):
            word = offset + lane
            there = word < number
            length = tl.load(words + 3 + word, mask=there, other=0)
            agrees = there & (length <= written)
            for back in range(most):
                newest = tl.load(history_at + row * history_stride + position - 1 - back, mask=back < written, other=-1)
                before = tl.load(words + 3 + 2 * number + word * most + back, mask=there, other=-1)
                agrees = agrees & ((back >= length) | (before == newest))
            token = tl.load(words + 3 + number + word, mask=there, other=0)
            _leave_out(logits_at, values_at, token, agrees)


def adjust_logits(logits: Tensor, rows: Tensor, positions: Tensor, history: Tensor, asked: Adjustments) -> Adjusted:
    """Rows of logits, masks and history are contiguous."""
    count, columns = logits.shape
    values = torch.empty((count, columns), dtype=torch.float32, device=logits.device)
    which = torch.empty(count, dtype=torch.bool, device=logits.device)
    if not count:
        return Adjusted(values, which)
    vocabulary_wide = (
        asked.masks,
        asked.masks.stride(0),
        asked.is_masked,
        asked.allowed.addresses,
        asked.counts.addresses,
        asked.penalties,
    )
    lists = (asked.biases.addresses, asked.ends.addresses, asked.first_end, asked.bad_words.addresses)
    given = (logits, logits.stride(0), values)
    _over_vocabulary[(count, triton.cdiv(columns, _BLOCK))](
        *given, which, rows, positions, *vocabulary_wide, *lists, columns, block=_BLOCK, num_warps=8
    )
    past = (history, history.stride(0))
    _named_tokens[(count,)](
        *given, rows, positions, *vocabulary_wide, *lists, *past, columns, block=_LISTED, num_warps=4
    )
    return Adjusted(values, which)
