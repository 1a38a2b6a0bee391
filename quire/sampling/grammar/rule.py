"""Rule: one sequence and the grammar it follows: which tokens may come, whether it may end, whether it must."""

from collections.abc import Callable

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
        self._renew: Callable[[], LLMatcher | None] | None = renew
        self._said: list[int] = []
        """What the matcher was told."""
        self._stop_ids = stop_ids
        self._not_ends = [token for token in end_tokens if token not in stop_ids]
        self._has_ended = False

    @property
    def is_complete(self) -> bool:
        """Satisfied, and nothing may follow."""
        return self._has_ended or (self.matcher.is_stopped() and not self.matcher.is_error())

    @property
    def failure(self) -> str | None:
        """Why it cannot go on, in words for its client."""
        if not self.matcher.is_error():
            return None
        first = self.matcher.get_error().strip().partition("\n")[0]
        return (
            f"the grammar cannot be followed any further: {first[:200]}. Other settings (allowed_token_ids, bad_words, "
            "logit_bias) may forbid what it needs"
        )

    def allows(self, token: int) -> bool:
        return self.matcher.validate_tokens([token]) == 1

    def advance(self, token: int) -> None:
        """The matcher fails on a token that its mask did not allow."""
        if self._has_ended or self.matcher.is_stopped():
            return
        if token in self._stop_ids and self.matcher.is_accepting():
            self._has_ended = True
        else:
            self._said.append(token)
            self.matcher.consume_token(token)
            self.recover()

    def recover(self) -> bool:
        """After a failure: start again with empty tables, once, and read what was said; true where that helped."""
        if self._renew is None or not self.matcher.is_error():
            return False
        fresh, self._renew = self._renew(), None
        if fresh is None:
            return False
        self.matcher = fresh
        return self.matcher.consume_tokens(self._said)

    def fill(self, mask: Words) -> None:
        """The matcher's own mask."""
        self.matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)

    def fix_ends(self, mask: Words) -> None:
        """Correct what the matcher's own mask says of tokens that end: it does not know which end this sequence."""
        for token in self._not_ends:
            mask[token // 32] &= ~np.uint32(1 << token % 32)
        if self._stop_ids and self.matcher.is_accepting():
            allow(mask, self._stop_ids)

    def take_forced(self) -> list[int]:
        """Tokens between which and others there is no choice, as the tokenizer itself would write them; it is advanced
        behind them.
        """
        if self.is_complete or self.matcher.is_error() or self.matcher.is_accepting():
            return []
        tokens: list[int] = self.matcher.compute_ff_tokens()
        if tokens:
            self._said += tokens
            self.matcher.consume_tokens(tokens)
            self.recover()
        return tokens

    def start_over(self) -> None:
        self.matcher.reset()
        self._said = []
        self._has_ended = False


def allow(mask: Words, tokens: frozenset[int]) -> None:
    """Set the bits of tokens that the mask reaches."""
    for token in tokens:
        if token // 32 < len(mask):
            mask[token // 32] |= np.uint32(1 << token % 32)


def forbid(mask: Words, tokens: frozenset[int]) -> None:
    for token in tokens:
        if token // 32 < len(mask):
            mask[token // 32] &= ~np.uint32(1 << token % 32)
