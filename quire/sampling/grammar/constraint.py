"""Constraint: what binds the next token of one sequence: its grammar, and the budget of its thinking part."""

from enum import Enum

import numpy as np

from quire.sampling.grammar.rule import Rule, Words, allow, forbid
from quire.sampling.grammar.thinking import Stage, Thinking

_ALL = np.uint32(0xFFFFFFFF)


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
    """Every token but those that end."""


class Constraint:
    """Of one sequence. It is told every token, drawn or forced, in order."""

    def __init__(self, rule: Rule | None, thinking: Thinking | None, stop_ids: frozenset[int]) -> None:
        self._rule = rule
        self._thinking = thinking
        self._stop_ids = stop_ids
        self._rule_follows = True
        """Before it is known whether the sequence thinks: all it has said is also the beginning of a text of the
        grammar."""
        self.failure: str | None = None
        """Why there is no next token."""

    @property
    def is_complete(self) -> bool:
        """The grammar is satisfied and nothing may follow."""
        return self._rule is not None and self._stage is Stage.BEHIND and self._rule.is_complete

    @property
    def rule(self) -> Rule | None:
        return self._rule

    @property
    def binding(self) -> Binding:
        if self.is_complete or self.failure is not None:
            return Binding.NOTHING  # whatever is drawn, nobody reads it
        stage = self._stage
        if stage is Stage.WITHIN:
            assert self._thinking is not None
            if self._thinking.forced is not None:
                return Binding.ONLY
            # an end among the thoughts would leave out the answer that was asked for
            return Binding.NOTHING if self._rule is None else Binding.GO_ON
        if self._rule is None:
            return Binding.NOTHING
        if stage is Stage.BEHIND:
            return Binding.GRAMMAR
        return Binding.GRAMMAR_OR_THOUGHT if self._rule_follows else Binding.ONLY

    def advance(self, token: int) -> None:
        stage = self._stage
        if self._thinking is not None and stage is not Stage.BEHIND:
            self._thinking.advance(token)
        if self._rule is None or stage is Stage.WITHIN:
            return
        if stage is Stage.BEFORE:
            self._advance_before(self._rule, token)
        else:
            self._rule.advance(token)
        self.failure = self._rule.failure

    def take_forced(self) -> list[int]:
        """Tokens that must follow, if any; it is advanced behind them."""
        forced: list[int] = []
        while self._thinking is not None and self._stage is Stage.WITHIN and self._thinking.forced is not None:
            forced.append(self._thinking.forced)
            self._thinking.advance(forced[-1])
        if self._rule is not None and self._stage is Stage.BEHIND:
            forced += self._rule.take_forced()
            self.failure = self._rule.failure
        return forced

    def complete_mask(self, mask: Words, binding: Binding) -> None:
        """From what the matcher says, where it was asked, to what this sequence may say next. `binding` is its own: it
        is worked out once a step.
        """
        if binding is Binding.ONLY:
            mask.fill(0)
            allow(mask, frozenset([self._only]))
        elif binding is Binding.GO_ON:
            mask.fill(_ALL)
            forbid(mask, self._stop_ids)
        elif binding is not Binding.NOTHING:
            assert self._rule is not None
            if self._rule.recover():
                self._rule.fill(mask)
            self.failure = self._rule.failure
            self._rule.fix_ends(mask)
            if binding is Binding.GRAMMAR_OR_THOUGHT:
                allow(mask, frozenset([self._only]))
        if self.failure is not None:
            mask.fill(_ALL)

    @property
    def _stage(self) -> Stage:
        return Stage.BEHIND if self._thinking is None else self._thinking.stage

    @property
    def _only(self) -> int:
        assert self._thinking is not None
        token = self._thinking.forced if self._stage is Stage.WITHIN else self._thinking.opening
        assert token is not None
        return token

    def _advance_before(self, rule: Rule, token: int) -> None:
        """The sequence may be about to think, or may have begun its answer with what looks like it."""
        if self._stage is Stage.WITHIN:
            rule.start_over()
        elif self._stage is Stage.BEHIND or (self._rule_follows and rule.allows(token)):
            rule.advance(token)
        else:
            self._rule_follows = False
