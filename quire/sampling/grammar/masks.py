"""GrammarMasks: the constrained rows of a worker, and the masks of a step for all of them at once.

Masks lie on the device by row, ones where nothing binds it, so that applying them asks nothing of the host: a CUDA
graph can do it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from quire.core.sampling_params import SamplingParams
from quire.ops.functional import apply_token_bitmask
from quire.ops.upload import upload
from quire.sampling.grammar.cache import GrammarCache
from quire.sampling.grammar.constraint import Constraint
from quire.sampling.grammar.mask_maker import MaskMaker
from quire.sampling.grammar.rule import Rule
from quire.sampling.grammar.thinking import Thinking
from quire.sampling.processors.base import LogitsProcessor, Newcomer

_NO_LIMIT = -1
"""A word of a mask that allows all of its tokens."""


class GrammarMasks(LogitsProcessor):
    """Unlike other processors it follows its rows on the host: `bind` before a step's tokens are drawn, and whoever
    learns of the tokens tells the constraints.
    """

    def __init__(
        self, max_rows: int, vocab_size: int, device: torch.device, grammar_cache: GrammarCache | None
    ) -> None:
        """Without a cache there are thinking budgets, but no grammars."""
        self._max_rows = max_rows
        self._vocab_size = vocab_size
        self._device = device
        self._grammar_cache = grammar_cache
        self._constraints: dict[int, Constraint] = {}
        self._maker = MaskMaker(device)
        self._masks = torch.empty((max_rows, 0), dtype=torch.int32, device=device)  # [rows, words]

    @property
    def is_active(self) -> bool:
        return bool(self._constraints)

    @property
    def width(self) -> int:
        """Words of a mask; the masks lie elsewhere when it changes."""
        return self._masks.shape[1]

    def admit(self, row: int, newcomer: Newcomer) -> None:
        if is_constrained(newcomer.params):
            constraint = self._constraint(newcomer.params, frozenset(newcomer.stop_ids))
            for token in newcomer.output:
                constraint.advance(token)
            self._constraints[row] = constraint
            self._widen(constraint)

    def release(self, row: int) -> None:
        if self._constraints.pop(row, None) is not None:
            self._masks[row].fill_(_NO_LIMIT)

    def foresee(self, rows: Sequence[int]) -> None:
        """Begin with the masks that `bind` is asked for next, if they take long: they are made while the device
        computes logits. Every token before is known.
        """
        if self._maker.is_slow:
            self._maker.begin([constraint for _, constraint in self._constrained(rows)], self.width)

    def bind(self, rows: Sequence[int]) -> list[tuple[int, Constraint]]:
        """Make the masks of a step over these rows; returns its constrained places. Every token before is known."""
        found = self._constrained(rows)
        if found:
            made = self._maker.masks([constraint for _, constraint in found], self.width)
            bound = upload([rows[place] for place, _ in found], torch.int64, self._device)
            self._masks.index_copy_(0, bound, made.to(self._device, non_blocking=True))
        return found

    def apply(self, logits: Tensor, rows: Tensor, positions: Tensor) -> None:
        apply_token_bitmask(logits, self._masks, rows)

    def _constrained(self, rows: Sequence[int]) -> list[tuple[int, Constraint]]:
        known = self._constraints
        return [(place, known[row]) for place, row in enumerate(rows) if row in known]

    def _constraint(self, params: SamplingParams, stop_ids: frozenset[int]) -> Constraint:
        rule = None
        if params.structured is not None:
            assert self._grammar_cache is not None, "there are grammars, and nothing to compile them with"
            matcher, renew = self._grammar_cache.matcher(params.structured)
            rule = Rule(matcher, stop_ids, tuple(self._grammar_cache.tokenizer().eos_tokens), renew)
        return Constraint(rule, None if params.reasoning is None else Thinking(params.reasoning), stop_ids)

    def _widen(self, constraint: Constraint) -> None:
        """The tokenizer may have more tokens than the model has logits, and is not opened before there is a grammar."""
        size = self._vocab_size
        if constraint.rule is not None and self._grammar_cache is not None:
            size = max(size, self._grammar_cache.tokenizer().vocab_size)
        width = -(-size // 32)
        if width > self.width:
            wider = torch.full((self._max_rows, width), _NO_LIMIT, dtype=torch.int32, device=self._device)
            wider[:, : self.width] = self._masks
            self._masks = wider


def is_constrained(params: SamplingParams) -> bool:
    """Whether tokens of such a sequence must be looked at on the host."""
    return params.structured is not None or (params.reasoning is not None and params.reasoning.budget is not None)
