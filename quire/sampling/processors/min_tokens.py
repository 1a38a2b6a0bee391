"""min_tokens: tokens that would end a sequence cannot be drawn before it has so many."""

import torch
from torch import Tensor

from quire.sampling.processors.base import LogitsProcessor, Newcomer
from quire.sampling.token_ids import within
from quire.sampling.token_lists import TokenLists


class MinTokens(LogitsProcessor):
    def __init__(self, max_rows: int, vocab_size: int, device: torch.device) -> None:
        self._vocab_size = vocab_size
        self._stops = TokenLists(max_rows, device)
        self._first_free = torch.zeros(max_rows, dtype=torch.int64, device=device)
        """By row: the first position at which the sequence may end."""

    @property
    def is_active(self) -> bool:
        return not self._stops.is_empty

    def admit(self, row: int, newcomer: Newcomer) -> None:
        stops = sorted(set(within(newcomer.stop_ids, self._vocab_size)))
        if stops and len(newcomer.output) < newcomer.params.min_tokens:
            self._stops.put(row, stops, [float("-inf")] * len(stops))
            self._first_free[row].fill_(len(newcomer.prompt) + newcomer.params.min_tokens)

    def release(self, row: int) -> None:
        self._stops.drop(row)

    def apply(self, logits: Tensor, rows: Tensor, positions: Tensor) -> None:
        too_early = positions < self._first_free[rows]
        self._stops.add_to(logits, rows, torch.where(too_early[:, None], self._stops.values[rows], 0.0))
