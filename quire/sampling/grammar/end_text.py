"""EndText: the end of a thinking part for which a vocabulary has no token of its own, as text.

A model writes such an end in whatever tokens give its text: `:</`, `think` and `>\\n` are a `</think>` too.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llguidance import LLTokenizer


class EndText:
    """Of one vocabulary. Sequences may share it."""

    def __init__(self, end: Sequence[int], tokenizer: "LLTokenizer") -> None:
        self._tokenizer = tokenizer
        self.text = tokenizer.decode_bytes(list(end))
        self._running_on = self._find_running_on()

    def spelled(self, token: int) -> bytes:
        return self._tokenizer.decode_bytes([token])

    def running_on(self, said: bytes) -> frozenset[int]:
        """Tokens that would complete the end behind what was said, and go on with more than blank space (`>{"`): a
        grammar begins with a token of its own.
        """
        sizes = range(len(self.text) - 1, 0, -1)
        begun = next((size for size in sizes if said.endswith(self.text[:size])), 0)
        return self._running_on[begun]

    def _find_running_on(self) -> list[frozenset[int]]:
        """By how much of the end was said before."""
        found: list[list[int]] = [[] for _ in self.text]
        for token in range(self._tokenizer.vocab_size):
            spelled = self.spelled(token)
            if self.text[-1:] in spelled:
                for begun, tokens in enumerate(found):
                    missing = self.text[begun:]
                    if spelled.startswith(missing) and spelled[len(missing) :].strip():
                        tokens.append(token)
        return [frozenset(tokens) for tokens in found]
