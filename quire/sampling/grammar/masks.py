"""GrammarMasks: the constrained rows of a worker, and the masks of a step for all of them at once."""

import os
from collections.abc import Sequence

import numpy as np
import torch
from llguidance import LLExecutor, LLMatcher
from torch import Tensor

from quire.core.sampling_params import SamplingParams
from quire.ops.functional import apply_token_bitmask
from quire.ops.upload import upload
from quire.sampling.grammar.constraint import Binding, Constraint
from quire.sampling.grammar.rule import Rule
from quire.sampling.grammar.shelf import GrammarShelf
from quire.sampling.grammar.thinking import Thinking
from quire.sampling.processors.base import LogitsProcessor, Newcomer

_IN_PARALLEL = 8
"""Matchers whose masks are worth waking threads for: one takes some tens of microseconds, a thread to wake as long."""
_MOST_THREADS = 8


class GrammarMasks(LogitsProcessor):
    """Unlike other processors it follows its rows on the host: `bind` before a step's tokens are drawn, and whoever
    learns of the tokens tells the constraints.
    """

    def __init__(self, vocab_size: int, device: torch.device, shelf: GrammarShelf | None) -> None:
        """Without a shelf there are thinking budgets, but no grammars."""
        self._vocab_size = vocab_size
        self._device = device
        self._shelf = shelf
        self._constraints: dict[int, Constraint] = {}
        self._executor: LLExecutor | None = None
        self._masks: Tensor | None = None  # int32 [bound rows, words], on the device
        self._places: Tensor | None = None  # int64 [bound rows]

    @property
    def is_active(self) -> bool:
        return bool(self._constraints)

    def admit(self, row: int, newcomer: Newcomer) -> None:
        if is_constrained(newcomer.params):
            constraint = self._constraint(newcomer.params, frozenset(newcomer.stop_ids))
            for token in newcomer.output:
                constraint.advance(token)
            self._constraints[row] = constraint

    def release(self, row: int) -> None:
        self._constraints.pop(row, None)

    def bind(self, rows: Sequence[int]) -> list[tuple[int, Constraint]]:
        """Make the masks of a step over these rows; returns its constrained places. Every token before is known."""
        found = [(place, self._constraints[row]) for place, row in enumerate(rows) if row in self._constraints]
        bindings = [(place, constraint, constraint.binding) for place, constraint in found]
        bound = [each for each in bindings if each[2] is not Binding.NOTHING]
        self._masks = self._places = None
        if bound:
            self._masks = self._made([(constraint, binding) for _, constraint, binding in bound])
            self._places = upload([place for place, _, _ in bound], torch.int64, self._device)
        return found

    def apply(self, logits: Tensor, rows: Tensor, positions: Tensor) -> None:
        if self._masks is not None and self._places is not None:
            apply_token_bitmask(logits, self._masks, self._places)

    def _constraint(self, params: SamplingParams, stop_ids: frozenset[int]) -> Constraint:
        rule = None
        if params.structured is not None:
            assert self._shelf is not None, "there are grammars, and nothing to compile them with"
            matcher, renew = self._shelf.matcher(params.structured)
            rule = Rule(matcher, stop_ids, tuple(self._shelf.tokenizer().eos_tokens), renew)
        return Constraint(rule, None if params.reasoning is None else Thinking(params.reasoning), stop_ids)

    def _made(self, bound: list[tuple[Constraint, Binding]]) -> Tensor:
        words_each = self._num_words([constraint for constraint, _ in bound])
        masks = torch.zeros((len(bound), words_each), dtype=torch.int32, pin_memory=self._device.type == "cuda")
        matchers = [
            (constraint.rule.matcher, number)
            for number, (constraint, binding) in enumerate(bound)
            if constraint.rule is not None and binding in (Binding.GRAMMAR, Binding.GRAMMAR_OR_THOUGHT)
        ]
        self._compute(matchers, masks)
        for (constraint, binding), words in zip(bound, masks.numpy().view(np.uint32), strict=True):
            constraint.complete_mask(words, binding)
        return masks.to(self._device, non_blocking=True)

    def _compute(self, matchers: list[tuple[LLMatcher, int]], masks: Tensor) -> None:
        row_bytes = masks.shape[1] * masks.element_size()
        if len(matchers) < _IN_PARALLEL:
            for matcher, number in matchers:
                matcher.unsafe_compute_mask_ptr(masks.data_ptr() + number * row_bytes, row_bytes)
            return
        if self._executor is None:
            self._executor = LLExecutor(min(_MOST_THREADS, os.cpu_count() or 1))
        self._executor.unsafe_compute_mask_ptr(matchers, masks.data_ptr(), row_bytes, len(masks))

    def _num_words(self, constraints: list[Constraint]) -> int:
        """The tokenizer may have more tokens than the model has logits."""
        has_rules = self._shelf is not None and any(constraint.rule is not None for constraint in constraints)
        size = self._shelf.tokenizer().vocab_size if self._shelf is not None and has_rules else 0
        return -(-max(size, self._vocab_size) // 32)


def is_constrained(params: SamplingParams) -> bool:
    """Whether tokens of such a sequence must be looked at on the host."""
    return params.structured is not None or (params.reasoning is not None and params.reasoning.budget is not None)
