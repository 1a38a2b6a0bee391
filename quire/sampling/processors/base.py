"""The interface of a logits processor: one feature that changes logits before a token is drawn from them.

A processor knows which rows use it and is only called while some row does. Its work is tensor operations over the
whole batch, in which rows that do not use it come out unchanged.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor

from quire.core.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A sequence that takes a row, whether it starts or goes on after a preemption or in another engine."""

    params: SamplingParams
    prompt: Sequence[int]
    output: Sequence[int]
    stop_ids: Iterable[int]
    """Tokens that end it, the model's own included."""
    bad_words: Sequence[Sequence[int]]
    """`params.bad_words`, as tokens."""


class LogitsProcessor(ABC):
    """Its tensors may be replaced by `admit` and `release`, never by `append` and `apply`."""

    @property
    @abstractmethod
    def is_active(self) -> bool:
        """Whether any row uses it; a host value."""

    @abstractmethod
    def admit(self, row: int, newcomer: Newcomer) -> None:
        """Remember a sequence, if it uses this. The row is free, and every id of the parameters has a logit."""

    @abstractmethod
    def release(self, row: int) -> None:
        """Forget a row, if it was known."""

    @abstractmethod
    def apply(self, logits: Tensor, rows: Tensor, positions: Tensor) -> None:
        """Change float32 `logits` [n, vocab] in place; `rows` and `positions` (of the tokens to draw) are [n]."""

    def append(self, rows: Tensor, tokens: Tensor) -> None:  # noqa: B027 - most processors keep no history
        """Tokens drawn for these rows, each row at most once; both int64 [n]."""
