"""What requests change about the logits that their tokens are drawn from, in this order:

- masks of grammars and `allowed_token_ids` leave tokens out;
- `logit_bias` is added;
- repetition, presence and frequency penalties, as OpenAI and vLLM define them. For a token that occurred `c` times in
  the output, and with `seen` saying whether it occurred in prompt or output:

      logit = logit / repetition if logit > 0 else logit * repetition       where seen
      logit = logit - frequency * c - presence * (c > 0)

- `min_tokens` leaves out what would end the sequence too early, `bad_words` what would complete one in its output.

A logit that is no number, or +inf, stays what it is: nothing a request asks for hides that the model is broken.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from quire.ops.adjustments import OUTPUT_UNIT, Adjusted, Adjustments
from quire.ops.reference.apply_token_bitmask import apply_token_bitmask

_OUT = float("-inf")


def adjust_logits(
    logits: Tensor,
    rows: Tensor,
    positions: Tensor,
    history: Tensor,
    asked: Adjustments,
    mask: Callable[[Tensor, Tensor, Tensor], None] = apply_token_bitmask,
) -> Adjusted:
    values = logits.to(torch.float32, copy=True)
    for place, (row, position) in enumerate(zip(rows.tolist(), positions.tolist(), strict=True)):
        if _asks(row, asked):
            is_whole = float(values[place].max()) < float("inf")  # NaN is no less
            if bool(asked.is_masked[row]):
                mask(values[place : place + 1], asked.masks, rows[place : place + 1])
            _adjust(values[place], row, position, history, asked, mask)
            if not is_whole:
                values[place].masked_fill_(~(logits[place] < float("inf")), float("inf"))
    return Adjusted(values, None)


def _asks(row: int, asked: Adjustments) -> bool:
    kinds = (asked.allowed, asked.biases, asked.counts, asked.ends, asked.bad_words)
    return bool(asked.is_masked[row]) or any(kind.get(row) is not None for kind in kinds)


def _adjust(
    values: Tensor,
    row: int,
    position: int,
    history: Tensor,
    asked: Adjustments,
    mask: Callable[[Tensor, Tensor, Tensor], None],
) -> None:
    allowed, biases, counts = asked.allowed.get(row), asked.biases.get(row), asked.counts.get(row)
    if allowed is not None:
        mask(values[None], allowed[None], torch.zeros(1, dtype=torch.int64))
    if biases is not None:
        ids, amounts = biases[1:].view(2, -1)
        values.index_add_(0, ids, amounts.view(torch.float32))
    if counts is not None:
        _penalize(values, counts, asked.penalties[row])
    ends, bad_words = asked.ends.get(row), asked.bad_words.get(row)
    if ends is not None and position < int(asked.first_end[row]):
        values.index_fill_(0, ends[1:].long(), _OUT)
    if bad_words is not None:
        values.index_fill_(0, _completing(bad_words, history[row, :position]), _OUT)


def _penalize(values: Tensor, counts: Tensor, penalties: Tensor) -> None:
    repetition, presence, frequency = penalties
    seen = counts.nonzero().flatten()  # few, and nothing changes for the others
    some, outputs = values[seen], counts[seen] // OUTPUT_UNIT
    some = torch.where(some > 0, some / repetition, some * repetition)
    values[seen] = some - frequency * outputs - presence * (outputs > 0)


def _completing(words: Tensor, past: Tensor) -> Tensor:
    """int64: the last tokens of words whose other tokens are the newest of the output."""
    number, most, begin = words[:3].tolist()
    lengths, last, before = words[3 : 3 + number], words[3 + number : 3 + 2 * number], words[3 + 2 * number :]
    newest = past[begin:].flip(0)[:most]
    agrees = torch.zeros(number, most, dtype=torch.bool)
    agrees[:, : len(newest)] = before.view(number, most)[:, : len(newest)] == newest
    agrees |= torch.arange(most) >= lengths[:, None]
    completed: Tensor = last[agrees.all(dim=1)]
    return completed.long()
