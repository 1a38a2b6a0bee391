"""Repetition, presence and frequency penalties: counts of a sequence's tokens on the device, for rows that use them."""

import torch
from torch import Tensor

from quire.core.sampling_params import SamplingParams
from quire.ops.reference.apply_penalties import OUTPUT_UNIT, PROMPT_FLAG, apply_penalties
from quire.ops.upload import upload
from quire.sampling.processors.base import LogitsProcessor, Newcomer
from quire.sampling.slot_pool import NEUTRAL_SLOT, SlotPool
from quire.sampling.token_ids import within

_NONE = (1.0, 0.0, 0.0)


class Penalties(LogitsProcessor):
    def __init__(self, max_rows: int, vocab_size: int, device: torch.device) -> None:
        self._vocab_size = vocab_size
        self._counts = SlotPool(max_rows, vocab_size, torch.int32, 0, device)
        self._strengths = torch.tensor(_NONE, device=device).repeat(max_rows, 1)
        """By row: repetition, presence, frequency."""

    @property
    def is_active(self) -> bool:
        return not self._counts.is_empty

    def admit(self, row: int, newcomer: Newcomer) -> None:
        strengths = _strengths_of(newcomer.params)
        if strengths == _NONE:
            return
        self._strengths[row] = upload(strengths, torch.float32, self._strengths.device)
        counts = self._counts.take(row)
        prompt = upload(within(newcomer.prompt, self._vocab_size), torch.int64, counts.device)
        output = upload(within(newcomer.output, self._vocab_size), torch.int64, counts.device)
        counts.index_fill_(0, prompt, PROMPT_FLAG)
        counts.index_add_(0, output, torch.full_like(output, OUTPUT_UNIT, dtype=torch.int32))

    def release(self, row: int) -> None:
        self._counts.give_back(row)

    def apply(self, logits: Tensor, rows: Tensor, positions: Tensor) -> None:
        slots = self._counts.slots[rows]
        repetition, presence, frequency = self._strengths[rows].unbind(1)
        # a row's strengths outlive its release; the counts of the neutral slot are 0, so they weigh nothing
        apply_penalties(logits, self._counts.table, slots, repetition, presence, frequency)

    def append(self, rows: Tensor, tokens: Tensor) -> None:
        slots = self._counts.slots[rows]
        units = torch.where(slots == NEUTRAL_SLOT, 0, OUTPUT_UNIT).to(torch.int32)
        self._counts.table.view(-1).index_add_(0, slots * self._vocab_size + tokens, units)


def _strengths_of(params: SamplingParams) -> tuple[float, float, float]:
    return params.repetition_penalty, params.presence_penalty, params.frequency_penalty
