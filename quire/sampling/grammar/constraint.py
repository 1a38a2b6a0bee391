"""Constraint: what binds the next token of one sequence: its grammar, and the budget of its thinking part."""

from collections.abc import Sequence
from enum import Enum

import numpy as np

from quire.sampling.grammar.rule import Rule, Words, allow, forbid
from quire.sampling.grammar.thinking import Stage, Thinking

ALL = np.uint32(0xFFFFFFFF)
"""A word of a mask that leaves nothing out."""


class Binding(Enum):
    """What the mask of the next token is made of."""

    NOTHING = 0
    """Every token is allowed."""
    GRAMMAR = 1
    """The matcher's own mask."""
    GRAMMAR_OR_THOUGHT = 2
    """The same, or the token that begins to think."""
    ONLY = 3
    """One token."""
    GO_ON = 4
    """Every token but those that end, or that cannot be told apart from the answer."""


class Constraint:
    """Of one sequence. It is told every token, drawn or forced, in order."""

    def __init__(self, rule: Rule | None, thinking: Thinking | None, stop_ids: frozenset[int]) -> None:
        self.rule = rule
        self.is_complete = False
        """The grammar is satisfied and nothing may follow."""
        self.failure: str | None = None
        """Why there is no next token."""
        self._thinking = thinking
        self._stop_ids = stop_ids
        self._stage = Stage.BEHIND if thinking is None else thinking.stage
        self._rule_follows = True
        """Before it is known whether the sequence thinks: all it has said is also the beginning of a text of the
        grammar."""
        if rule is not None and thinking is None:
            self._heed(rule)

    @property
    def is_satisfied(self) -> bool:
        """Whether it will never bind a token again."""
        return self.rule is None and self._stage is Stage.BEHIND

    @property
    def binding(self) -> Binding:
        if self.is_complete or self.failure is not None:
            return Binding.NOTHING  # whatever is drawn, nobody reads it
        if self._stage is Stage.BEHIND:
            return Binding.NOTHING if self.rule is None else Binding.GRAMMAR
        if self._stage is Stage.WITHIN:
            assert self._thinking is not None
            if self._thinking.forced is not None:
                return Binding.ONLY
            # an end among the thoughts would leave out the answer that was asked for
            return Binding.NOTHING if self.rule is None else Binding.GO_ON
        if self.rule is None:
            return Binding.NOTHING
        return Binding.GRAMMAR_OR_THOUGHT if self._rule_follows else Binding.ONLY

    def advance(self, token: int) -> None:
        if self._stage is not Stage.BEHIND:
            self._advance_thinking(token)
        elif self.rule is not None:
            self.rule.advance(token)
            self._heed(self.rule)

    def num_allowed(self, drafts: Sequence[int]) -> int:
        """How many of these may follow one after the other; none where more than a grammar binds."""
        return 0 if self.rule is None or self._thinking is not None else self.rule.num_allowed(drafts)

    def correct_masks_behind(self, drafts: Sequence[int], masks: Words) -> int:
        """From what the matcher says to what may follow each of these drafts, which are allowed; returns of how many
        that is known."""
        return 0 if self.rule is None else self.rule.correct_masks_behind(drafts, masks)

    def take_forced(self) -> list[int]:
        """Tokens that must follow, if any; it is advanced behind them."""
        forced = [] if self._stage is Stage.BEHIND else self._take_end_of_thinking()
        if self.rule is not None and self._stage is Stage.BEHIND:
            forced += self.rule.take_forced()
            self._heed(self.rule)
        return forced

    def complete_mask(self, mask: Words, binding: Binding) -> None:
        """From what the matcher says, where it was asked, to what this sequence may say next. `binding` is its own: it
        is worked out once a step.
        """
        if binding is Binding.NOTHING:
            mask.fill(ALL)
        elif binding is Binding.ONLY:
            mask.fill(0)
            allow(mask, frozenset([self._only]))
        elif binding is Binding.GO_ON:
            assert self._thinking is not None
            mask.fill(ALL)
            forbid(mask, self._stop_ids | self._thinking.ruled_out)
        else:
            assert self.rule is not None
            self.rule.correct_mask(mask)
            self.failure = self.rule.failure
            if binding is Binding.GRAMMAR_OR_THOUGHT:
                allow(mask, frozenset([self._only]))
        if self.failure is not None:
            mask.fill(ALL)

    @property
    def _only(self) -> int:
        assert self._thinking is not None
        token = self._thinking.forced if self._stage is Stage.WITHIN else self._thinking.opening
        assert token is not None
        return token

    def _heed(self, rule: Rule) -> None:
        """The sequence thinks no more: its grammar decides alone."""
        self.is_complete = rule.is_complete
        self.failure = rule.failure

    def _advance_thinking(self, token: int) -> None:
        assert self._thinking is not None
        before = self._stage
        self._thinking.advance(token)
        self._stage = self._thinking.stage
        if self.rule is None:
            return
        if before is Stage.BEFORE:
            self._advance_before(self.rule, token)
        if self._stage is Stage.BEHIND:
            self._heed(self.rule)

    def _advance_before(self, rule: Rule, token: int) -> None:
        """The sequence may be about to think, or may have begun its answer with what looks like it."""
        if self._stage is Stage.WITHIN:
            rule.start_over()
        elif self._stage is Stage.BEHIND or (self._rule_follows and rule.allows(token)):
            rule.advance(token)
            self.failure = rule.failure
        else:
            self._rule_follows = False

    def _take_end_of_thinking(self) -> list[int]:
        assert self._thinking is not None
        forced: list[int] = []
        while self._thinking.forced is not None:
            forced.append(self._thinking.forced)
            self._thinking.advance(forced[-1])
        self._stage = self._thinking.stage
        return forced
