"""allowed_token_ids: every other token is out."""

import torch
from torch import Tensor

from quire.ops.upload import upload
from quire.sampling.processors.base import LogitsProcessor, Newcomer
from quire.sampling.slot_pool import SlotPool


class AllowedTokens(LogitsProcessor):
    def __init__(self, max_rows: int, vocab_size: int, device: torch.device) -> None:
        self._allowed = SlotPool(max_rows, vocab_size, torch.bool, True, device)

    @property
    def is_active(self) -> bool:
        return not self._allowed.is_empty

    def admit(self, row: int, newcomer: Newcomer) -> None:
        ids = newcomer.params.allowed_token_ids
        if ids is not None:
            allowed = self._allowed.take(row).fill_(False)
            allowed.index_fill_(0, upload(ids, torch.int64, allowed.device), True)

    def release(self, row: int) -> None:
        self._allowed.give_back(row)

    def apply(self, logits: Tensor, rows: Tensor, positions: Tensor) -> None:
        allowed = self._allowed.table[self._allowed.slots[rows]]  # [n, vocab]
        logits.masked_fill_(~allowed, float("-inf"))
