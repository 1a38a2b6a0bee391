"""RowAdjustments: what the running sequences ask to be changed about their logits.

It is filled at admission, each row with tensors of its own, and goes on by itself: a step costs no work per sequence on
the host. What each adjustment does is `ops/reference/adjust_logits.py`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from quire.core.sampling_params import SamplingParams
from quire.ops.adjustments import OUTPUT_UNIT, PROMPT_FLAG, Adjustments
from quire.ops.row_tensors import RowTensors
from quire.ops.upload import upload
from quire.sampling.newcomer import Newcomer
from quire.sampling.token_ids import within

_NO_PENALTIES = (1.0, 0.0, 0.0)
_EVERY_TOKEN = -1
"""A word of a mask that leaves nothing out."""


class RowAdjustments:
    """Every id of a newcomer's parameters has a logit."""

    def __init__(self, max_rows: int, vocab_size: int, device: torch.device) -> None:
        self._vocab_size = vocab_size
        self._device = device
        words = -(-vocab_size // 32)
        self.tensors = Adjustments(
            masks=torch.full((max_rows + 1, words), _EVERY_TOKEN, dtype=torch.int32, device=device),
            is_masked=torch.zeros(max_rows + 1, dtype=torch.bool, device=device),
            allowed=RowTensors(max_rows, device),
            counts=RowTensors(max_rows, device),
            penalties=torch.tensor(_NO_PENALTIES, device=device).repeat(max_rows + 1, 1),
            biases=RowTensors(max_rows, device),
            ends=RowTensors(max_rows, device),
            first_end=torch.zeros(max_rows + 1, dtype=torch.int64, device=device),
            bad_words=RowTensors(max_rows, device),
        )
        self._first_end: dict[int, int] = {}
        """By row that may not end yet: the first position at which it may."""

    @property
    def are_asked_for(self) -> bool:
        """By some row; masks of grammars are not known here."""
        return len(self.tensors) > 0

    @property
    def penalize(self) -> bool:
        """Whether some row has penalties."""
        return len(self.tensors.counts) > 0

    def counts(self, row: int) -> Tensor | None:
        """Those that the row's penalties go by, as `Adjustments` has them, if it has any."""
        return self.tensors.counts.get(row)

    def admit(self, row: int, newcomer: Newcomer) -> None:
        """Remember what a sequence asks for. The row is free."""
        params, asked = newcomer.params, self.tensors
        if params.allowed_token_ids is not None:
            asked.allowed.put(row, self._mask_of(params.allowed_token_ids))
        if params.logit_bias:
            amounts = np.array(list(params.logit_bias.values()), np.float32).view(np.int32)
            self._put(asked.biases, row, [len(amounts), *params.logit_bias, *amounts.tolist()])
        penalties = _penalties_of(params)
        if penalties != _NO_PENALTIES:
            asked.penalties[row] = upload(penalties, torch.float32, self._device)
            asked.counts.put(row, self._counts_of(newcomer))
        stops = sorted(set(within(newcomer.stop_ids, self._vocab_size)))
        if stops and len(newcomer.output) < params.min_tokens:
            self._put(asked.ends, row, [len(stops), *stops])
            self._first_end[row] = len(newcomer.prompt) + params.min_tokens
            asked.first_end[row].fill_(self._first_end[row])
        if newcomer.bad_words:
            self._put(asked.bad_words, row, _word_table(newcomer.bad_words, len(newcomer.prompt)))

    def release(self, row: int) -> None:
        """Nothing happens where the row is free."""
        asked = self.tensors
        for kind in (asked.allowed, asked.biases, asked.counts, asked.ends, asked.bad_words):
            kind.drop(row)
        self._first_end.pop(row, None)

    def expire(self, fewest: Callable[[Iterable[int]], Mapping[int, int]]) -> bool:
        """Forget ends of rows that may end now; `fewest` tells how many tokens some rows have at least. Returns whether
        there were any: what is satisfied is to cost nothing."""
        if not self._first_end:
            return False
        lengths = fewest(self._first_end)
        over = [row for row, first in self._first_end.items() if lengths[row] >= first]
        for row in over:
            del self._first_end[row]
            self.tensors.ends.drop(row)
        return bool(over)

    def _put(self, kind: RowTensors, row: int, numbers: Sequence[int]) -> None:
        kind.put(row, upload(numbers, torch.int32, self._device))

    def _mask_of(self, tokens: Sequence[int]) -> Tensor:
        bits = np.zeros(self.tensors.masks.shape[1] * 32, np.uint8)
        bits[list(tokens)] = 1
        return upload(np.packbits(bits, bitorder="little").view(np.int32).tolist(), torch.int32, self._device)

    def _counts_of(self, newcomer: Newcomer) -> Tensor:
        counts = torch.zeros(self._vocab_size, dtype=torch.int32, device=self._device)
        prompt = upload(within(newcomer.prompt, self._vocab_size), torch.int64, self._device)
        output = upload(within(newcomer.output, self._vocab_size), torch.int64, self._device)
        counts.index_fill_(0, prompt, PROMPT_FLAG)
        return counts.index_add_(0, output, torch.full_like(output, OUTPUT_UNIT, dtype=torch.int32))


def _penalties_of(params: SamplingParams) -> tuple[float, float, float]:
    return params.repetition_penalty, params.presence_penalty, params.frequency_penalty


def _word_table(words: Sequence[Sequence[int]], output_begins: int) -> list[int]:
    """As `Adjustments.bad_words` describes it."""
    most = max(len(word) for word in words) - 1
    before = [[*reversed(word[:-1]), *[-1] * (most + 1 - len(word))] for word in words]
    lengths, last = [len(word) - 1 for word in words], [word[-1] for word in words]
    return [len(words), most, output_begins, *lengths, *last, *(token for each in before for token in each)]
