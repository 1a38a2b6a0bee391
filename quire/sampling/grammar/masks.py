"""GrammarMasks: the constrained rows of a worker, and the masks of a step for all of them at once.

Masks lie on the device by row, so that applying them asks nothing of the host: a CUDA graph can do it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from quire.core.sampling_params import SamplingParams
from quire.ops.upload import upload
from quire.sampling.grammar.cache import GrammarCache
from quire.sampling.grammar.constraint import Constraint
from quire.sampling.grammar.end_text import EndText
from quire.sampling.grammar.mask_maker import Asked, MaskMaker
from quire.sampling.grammar.rule import Rule
from quire.sampling.grammar.thinking import Thinking, most_tokens
from quire.sampling.mode import num_reported
from quire.sampling.newcomer import Newcomer

Drafts = Mapping[int, Sequence[int]]
"""By place in a step: tokens behind the last one."""
NO_DRAFTS: Drafts = MappingProxyType({})
_EVERY_TOKEN = -1
"""A word of a mask that leaves nothing out."""


@dataclass(frozen=True, slots=True)
class BoundDrafts:
    """What grammars say of the drafts that a step verifies."""

    allowed: Mapping[int, int]
    """By place that verifies any: how many of them may follow one after the other."""
    masks: Tensor  # int32 [n, words] on the device
    """Of these places, one after the other: what may come instead of each of their drafts, and behind the last."""


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

    def foresee(self, rows: Sequence[int], drafts: Drafts = NO_DRAFTS) -> None:
        """Begin with the masks that `bind` is asked for next, if they take long: they are made while the device
        computes logits. Every token before is known.
        """
        if self._maker.is_slow:
            _, _, asked = self._asked(rows, drafts)
            self._maker.begin(asked, self._width)

    def bind(self, rows: Sequence[int], drafts: Drafts = NO_DRAFTS) -> BoundDrafts:
        """Make the masks of a step over these rows, of which some verify `drafts`. Every token before is known.

        Rows with drafts have a mask for each place, and none that holds for all.
        """
        singly, several, asked = self._asked(rows, drafts)
        if not asked:
            return BoundDrafts({}, self._masks[:0])
        made = self._maker.masks(asked, self._width)
        device = self._masks.device
        masks = made.words.to(device, non_blocking=True)[:, : self._masks.shape[1]]
        count = len(singly)
        if singly:
            self._masks.index_copy_(0, upload([rows[place] for place in singly], torch.int64, device), masks[:count])
        if several:
            at = upload([rows[place] for place in several], torch.int64, device)
            self._masks.index_fill_(0, at, _EVERY_TOKEN)
        return BoundDrafts(dict(zip(several, made.allowed[count:], strict=True)), masks[count:])

    def constrained(self, rows: Sequence[int]) -> list[tuple[int, Constraint]]:
        """Which places of a step over these rows are constrained."""
        known = self._constraints
        return [(place, known[row]) for place, row in enumerate(rows) if row in known]

    def _asked(self, rows: Sequence[int], drafts: Drafts) -> tuple[list[int], list[int], list[Asked]]:
        """Constrained places that have one mask, and those that verify drafts; and what is asked of both, in turn."""
        found = dict(self.constrained(rows))
        singly = [place for place in found if place not in drafts]
        several = [place for place in found if place in drafts]
        return singly, several, [(found[place], drafts.get(place, ())) for place in (*singly, *several)]

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
