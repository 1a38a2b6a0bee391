"""logit_bias: a number added to the logits of chosen tokens."""

import torch
from torch import Tensor

from quire.sampling.processors.base import LogitsProcessor, Newcomer
from quire.sampling.token_lists import TokenLists


class LogitBias(LogitsProcessor):
    def __init__(self, max_rows: int, device: torch.device) -> None:
        self._biases = TokenLists(max_rows, device)

    @property
    def is_active(self) -> bool:
        return not self._biases.is_empty

    def admit(self, row: int, newcomer: Newcomer) -> None:
        bias = newcomer.params.logit_bias
        if bias:
            self._biases.put(row, list(bias), list(bias.values()))

    def release(self, row: int) -> None:
        self._biases.drop(row)

    def apply(self, logits: Tensor, rows: Tensor, positions: Tensor) -> None:
        self._biases.add_to(logits, rows, self._biases.values[rows])
