"""Conversation: what one user says and gets to read, in tokens. Every turn's prompt is all that was said before."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


class Stretch(NamedTuple):
    """A piece of a prompt that has a name: prompts with equal names at the beginning share these tokens."""

    name: int
    tokens: int


class Turn(NamedTuple):
    """One thing that a user says."""

    asked: int
    """Tokens that are new."""
    answered: int
    """Tokens of the answer, which nobody knows beforehand."""
    pause: float = 0.0
    """Seconds between the answer before and this."""


@dataclass(slots=True)
class Conversation:
    """Grows by a turn at a time."""

    name: int
    """No other conversation and no shared stretch has it."""
    start: float
    turns: Iterator[Turn]
    shared: tuple[Stretch, ...] = ()
    """What its prompts begin with and others' do too: a system prompt, or pieces that a trace names."""
    first: int = 0
    """Tokens of its first turn."""
    said: int = 0
    """Tokens of all turns so far, without what is shared."""

    @property
    def shared_tokens(self) -> int:
        return sum(stretch.tokens for stretch in self.shared)

    def stretches(self, own: int) -> tuple[Stretch, ...]:
        """A prompt with so many tokens of this conversation."""
        return (*self.shared, Stretch(self.name, own))
