"""Rule: one sequence and the grammar it follows: which tokens may come, whether it may end, whether it must.

It is asked for every row at every step, so what it knows is kept in plain attributes.
"""

from collections.abc import Callable, Sequence

import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

Words = NDArray[np.uint32]
"""A mask of one row: bit `token % 32` of word `token // 32` is set where a token is allowed."""


class Rule:
    """A matcher that knows what ends this sequence: its stop tokens are allowed exactly where the grammar is satisfied.

    A stop token that is also text of the grammar is allowed as text too, for the client named it.
    """

    def __init__(
        self,
        matcher: LLMatcher,
        stop_ids: frozenset[int],
        end_tokens: tuple[int, ...],
        renew: Callable[[], LLMatcher | None] = lambda: None,
    ) -> None:
        """`end_tokens` are those that the matcher itself takes for ends. Matchers of one grammar share tables that can
        become full; `renew` gives one with empty tables, where the others may be to blame.
        """
        self.matcher = matcher
        self.is_complete = matcher.is_stopped()
        """Satisfied, and nothing may follow."""
        self.failure: str | None = None
        """Why it cannot go on, in words for its client."""
        self._renew: Callable[[], LLMatcher | None] | None = renew
        self._said: list[int] = []
        """What the matcher was told."""
        self._stop_ids = stop_ids
        self._not_ends = frozenset(end_tokens) - stop_ids
        self._has_other_ends = stop_ids != frozenset(end_tokens)

    def allows(self, token: int) -> bool:
        return self.matcher.validate_tokens([token]) == 1

    def advance(self, token: int) -> None:
        """It fails on a token that its mask did not allow."""
        if self.is_complete:
            return
        if token in self._stop_ids and self.matcher.is_accepting():
            self.is_complete = True
            return
        self._said.append(token)
        if not self.matcher.consume_token(token):
            self._recover()
        elif self.matcher.is_stopped():
            self.is_complete = True

    def take_forced(self) -> list[int]:
        """Tokens between which and others there is no choice, as the tokenizer itself would write them; it is advanced
        behind them.
        """
        if self.is_complete or self.failure is not None or self.matcher.is_accepting():
            return []
        tokens: list[int] = self.matcher.compute_ff_tokens()
        if tokens:
            self._said += tokens
            if not self.matcher.consume_tokens(tokens):
                self._recover()
            elif self.matcher.is_stopped():
                self.is_complete = True
        return tokens

    def num_allowed(self, tokens: Sequence[int]) -> int:
        """How many of these may follow one after the other, without an end among them: what comes behind an end would
        be no part of the text. None any more where tables were full once: what was only a guess fills them too."""
        if self.is_complete or self.failure is not None or self._renew is None:
            return 0
        count = 0
        for token in tokens[: self.matcher.validate_tokens(list(tokens))]:
            if token in self._stop_ids or token in self._not_ends or not self.matcher.consume_token(token):
                break
            count += 1
            if self.matcher.is_stopped():
                self.matcher.rollback(count)
                return count - 1
        if count:
            self.matcher.rollback(count)
        return count

    @property
    def corrects_mask(self) -> bool:
        """Whether the mask that its matcher has just made is not yet its own."""
        return self._has_other_ends or self.matcher.is_error()

    def correct_mask(self, mask: Words) -> None:
        """The matcher does not know which tokens end this sequence, and may have failed."""
        while self.matcher.is_error() and self._recover():  # again where it was to blame itself
            self.matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        if self._not_ends:
            forbid(mask, self._not_ends)
        if self._stop_ids and self.matcher.is_accepting():
            allow(mask, self._stop_ids)

    def correct_masks_behind(self, tokens: Sequence[int], masks: Words) -> int:
        """The same for `masks`, [tokens, words], which the matcher has made behind each of these; returns how many are
        known: none where it has failed on its way."""
        if self.matcher.is_error():
            return 0
        if self._has_other_ends and tokens:
            for token, mask in zip(tokens, masks, strict=False):
                self.matcher.consume_token(token)
                self.correct_mask(mask)
            self.matcher.rollback(len(tokens))
        return len(tokens)

    def start_over(self) -> None:
        self.matcher.reset()
        self._said = []
        self.is_complete = self.matcher.is_stopped()

    def _recover(self) -> bool:
        """After a failure: start again with empty tables, once, and read what was said; true where that helped."""
        fresh = None if self._renew is None else self._renew()
        self._renew = None
        if fresh is not None:
            self.matcher = fresh
            if fresh.consume_tokens(self._said):
                self.is_complete = fresh.is_stopped()
                return True
        first = self.matcher.get_error().strip().partition("\n")[0]
        self.failure = (
            f"the grammar cannot be followed any further: {first[:200]}. Other settings (allowed_token_ids, bad_words, "
            "logit_bias) may forbid what it needs"
        )
        return False


def allow(mask: Words, tokens: frozenset[int]) -> None:
    """Set the bits of tokens that the mask reaches."""
    for token in tokens:
        if token // 32 < len(mask):
            mask[token // 32] |= np.uint32(1 << token % 32)


def forbid(mask: Words, tokens: frozenset[int]) -> None:
    for token in tokens:
        if token // 32 < len(mask):
            mask[token // 32] &= ~np.uint32(1 << token % 32)
