"""GrammarMasks: the constrained rows of a worker, and the masks of a step for all of them at once.

Masks lie on the device by row, so that applying them asks nothing of the host: a CUDA graph can do it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from quire.core.sampling_params import SamplingParams
from quire.ops.upload import upload
from quire.sampling.grammar.cache import GrammarCache
from quire.sampling.grammar.constraint import Constraint
from quire.sampling.grammar.end_text import EndText
from quire.sampling.grammar.mask_maker import MaskMaker
from quire.sampling.grammar.rule import Rule
from quire.sampling.grammar.thinking import Thinking, most_tokens
from quire.sampling.mode import num_reported
from quire.sampling.newcomer import Newcomer

_EVERY_TOKEN = -1
"""A word of a mask that leaves nothing out."""


@dataclass(frozen=True, slots=True)
class BoundDrafts:
    """What grammars say of the drafts that a step verifies."""

    allowed: Mapping[int, int]
    """By place: how many of its drafts may follow one after the other."""
    masks: Tensor  # int32 [n, words] on the device
    """Of places whose drafts are allowed, one after the other: what may come instead of each, and behind the last."""


class GrammarMasks:
    """It follows its rows on the host: `bind` before a step's tokens are drawn, and whoever learns of the tokens tells
    the constraints.
    """

    def __init__(
        self,
        masks: Tensor,
        is_masked: Tensor,
        vocab_size: int,
        grammar_cache: GrammarCache | None,
        *,
        is_alone: bool = True,
    ) -> None:
        """Writes `masks` and `is_masked`, which are as in `Adjustments`. Without a cache there are thinking budgets,
        but no grammars. `is_alone`: no other rank has the same rows.
        """
        self._masks = masks
        self._is_masked = is_masked
        self._width = -(-vocab_size // 32)
        """Words of the masks that are made: the tokenizer may have more tokens than the model has logits."""
        self._grammar_cache = grammar_cache
        self._is_alone = is_alone
        self._constraints: dict[int, Constraint] = {}
        self._thinking_ends: dict[int, int] = {}
        """By row that nothing but a budget binds: how many tokens it has at most when its thinking is over."""
        self._end_text: tuple[tuple[int, ...], EndText] | None = None
        """Of a thinking part whose end is several tokens; a model has one such end, if any."""
        self._maker = MaskMaker(masks.device)

    @property
    def is_active(self) -> bool:
        """Whether any row is constrained."""
        return bool(self._constraints)

    def admit(self, row: int, newcomer: Newcomer) -> None:
        if is_constrained(newcomer.params):
            constraint = self._constraint(newcomer.params, frozenset(newcomer.stop_ids))
            for token in newcomer.output:
                constraint.advance(token)
            self._constraints[row] = constraint
            self._note_budget(row, newcomer)
            self._is_masked[row].fill_(True)
            if constraint.rule is not None and self._grammar_cache is not None:
                self._width = max(self._width, -(-self._grammar_cache.tokenizer().vocab_size // 32))

    def release(self, row: int) -> None:
        self._thinking_ends.pop(row, None)
        if self._constraints.pop(row, None) is not None:
            self._is_masked[row].fill_(False)

    def expire(self, fewest: Callable[[Iterable[int]], Mapping[int, int]]) -> bool:
        """Forget budgets of rows that think no more; `fewest` tells how many tokens some rows have at least. Returns
        whether there were any: what is satisfied is to cost nothing.

        Ranks that share rows are to forget them in the same step, and only one of them sees the tokens: they go by the
        number of tokens alone.
        """
        if not self._thinking_ends:
            return False
        if self._is_alone:
            over = [row for row in self._thinking_ends if self._constraints[row].is_satisfied]
        else:
            lengths = fewest(self._thinking_ends)
            over = [row for row, most in self._thinking_ends.items() if lengths[row] >= most]
        for row in over:
            self.release(row)
        return bool(over)

    def foresee(self, rows: Sequence[int]) -> None:
        """Begin with the masks that `bind` is asked for next, if they take long: they are made while the device
        computes logits. Every token before is known.
        """
        if self._maker.is_slow:
            self._maker.begin([constraint for _, constraint in self.constrained(rows)], self._width)

    def bind(self, rows: Sequence[int], drafts: Mapping[int, Sequence[int]] | None = None) -> BoundDrafts | None:
        """Make the masks of a step over these rows. Every token before is known, and by place the `drafts` that are
        verified: such rows have a mask for each of these, as far as their grammars allow them, and not one for all.
        """
        found = self.constrained(rows)
        if not found:
            return None
        made = self._maker.masks([constraint for _, constraint in found], self._width)
        of_drafts = self._bind_drafts(found, made, drafts) if drafts else None
        bound = upload([rows[place] for place, _ in found], torch.int64, self._masks.device)
        self._masks.index_copy_(0, bound, self._on_device(made))
        return of_drafts

    def constrained(self, rows: Sequence[int]) -> list[tuple[int, Constraint]]:
        """Which places of a step over these rows are constrained."""
        known = self._constraints
        return [(place, known[row]) for place, row in enumerate(rows) if row in known]

    def _bind_drafts(
        self, found: Sequence[tuple[int, Constraint]], made: Tensor, drafts: Mapping[int, Sequence[int]]
    ) -> BoundDrafts:
        """`made` are the masks of all that were found; those that become the first of several are taken from it."""
        most = sum(1 + len(each) for each in drafts.values())
        masks = torch.empty((most, made.shape[1]), dtype=torch.int32, pin_memory=self._masks.device.type == "cuda")
        words, end = masks.numpy().view(np.uint32), 0
        allowed: dict[int, int] = {}
        for number, (place, constraint) in enumerate(found):
            if place in drafts:
                count = allowed[place] = constraint.masks_behind(drafts[place], words[end + 1 :])
                if count:
                    masks[end] = made[number]
                    made[number] = _EVERY_TOKEN
                    end += 1 + count
        return BoundDrafts(allowed, self._on_device(masks[:end]))

    def _on_device(self, masks: Tensor) -> Tensor:
        """With no words beyond its logits."""
        return masks.to(self._masks.device, non_blocking=True)[:, : self._masks.shape[1]]

    def _note_budget(self, row: int, newcomer: Newcomer) -> None:
        part = newcomer.params.reasoning
        if newcomer.params.structured is None and part is not None and part.budget is not None:
            self._thinking_ends[row] = len(newcomer.prompt) + most_tokens(part, part.budget)

    def _constraint(self, params: SamplingParams, stop_ids: frozenset[int]) -> Constraint:
        rule = None
        if params.structured is not None:
            assert self._grammar_cache is not None, "there are grammars, and nothing to compile them with"
            matcher, renew = self._grammar_cache.matcher(params.structured)
            rule = Rule(matcher, stop_ids, tuple(self._grammar_cache.tokenizer().eos_tokens), renew)
        thinking = None if params.reasoning is None else Thinking(params.reasoning, self._waits_for(params))
        return Constraint(rule, thinking, stop_ids)

    def _waits_for(self, params: SamplingParams) -> EndText | None:
        """Where a grammar waits for an end that the vocabulary has no token for. A budget alone goes by the tokens: it
        asks for no grammars, and every rank is to count alike."""
        part = params.reasoning
        if part is None or params.structured is None or self._grammar_cache is None or len(part.end) == 1:
            return None
        if self._end_text is None or self._end_text[0] != part.end:
            self._end_text = part.end, EndText(part.end, self._grammar_cache.tokenizer())
        return self._end_text[1] if self._end_text[1].text else None


def is_constrained(params: SamplingParams) -> bool:
    """Whether tokens of such a sequence must be looked at on the host."""
    return params.structured is not None or (params.reasoning is not None and params.reasoning.budget is not None)


def may_draft(params: SamplingParams) -> bool:
    """Whether drafts of such a constrained sequence can be verified: by its grammar alone, and where nobody asks what
    the model thought of tokens before the grammar ruled some out."""
    return params.structured is not None and params.reasoning is None and num_reported(params) is None
