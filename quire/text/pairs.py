"""Two texts as one sequence: what a tokenizer puts before, between and behind them, and which of them a token is of."""

from collections.abc import Sequence
from dataclasses import dataclass

import tokenizers

from quire.core.errors import InvalidRequest

PROBES = (("a", "a"), ("the", "the"), ("1", "1"), ("\n", "\n"))
"""Texts whose pair shows the frame; every vocabulary has tokens for one of them."""


@dataclass(frozen=True, slots=True)
class PairTokens:
    """A pair of texts as a model reads it."""

    ids: list[int]
    types: list[int]
    """Which of the two texts a token is of, by the tokenizer's own numbers."""


@dataclass(frozen=True, slots=True)
class Part:
    """Tokens that stand around the texts of every pair."""

    ids: tuple[int, ...] = ()
    types: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PairFrame:
    """How one tokenizer writes pairs; without a frame they are one text after the other."""

    before: Part = Part()
    between: Part = Part()
    behind: Part = Part()
    first_type: int = 0
    second_type: int = 0
    around_first: tuple[str, str] = ("", "")
    """What is written before and behind a first text, as tokens may hold both."""
    around_second: tuple[str, str] = ("", "")

    @property
    def size(self) -> int:
        """Tokens that it adds to every pair."""
        return len(self.before.ids) + len(self.between.ids) + len(self.behind.ids)

    def written_first(self, text: str) -> str:
        """What is to be tokenized of a first text."""
        before, behind = self.around_first
        return f"{before}{text}{behind}"

    def written_second(self, text: str) -> str:
        """What is to be tokenized of a second text."""
        before, behind = self.around_second
        return f"{before}{text}{behind}"

    def bare(self) -> "PairFrame":
        """The same without anything around the texts."""
        return PairFrame(first_type=self.first_type, second_type=self.second_type)

    def join(self, first: Sequence[int], second: Sequence[int], limit: int | None = None) -> PairTokens:
        """Both texts, given without any tokens around them. Beyond `limit` the ends of the longer one go first."""
        if limit is not None and self.size + len(first) + len(second) > limit:
            kept = _longest_first(len(first), len(second), self._room(limit))
            first, second = first[: kept[0]], second[: kept[1]]
        return PairTokens(
            [*self.before.ids, *first, *self.between.ids, *second, *self.behind.ids],
            [
                *self.before.types,
                *[self.first_type] * len(first),
                *self.between.types,
                *[self.second_type] * len(second),
                *self.behind.types,
            ],
        )

    def _room(self, limit: int) -> int:
        if limit < self.size:
            raise InvalidRequest(
                f"truncate_prompt_tokens is {limit}, but the tokenizer alone adds {self.size} tokens to every pair; "
                "raise it",
                field="truncate_prompt_tokens",
            )
        return limit - self.size


def frame_of(pair: tokenizers.Encoding, *, with_types: bool) -> PairFrame | None:
    """The frame that an encoded pair shows; None where one of its texts has no tokens."""
    owners = pair.sequence_ids
    if 0 not in owners or 1 not in owners:
        return None
    types = pair.type_ids if with_types else [0] * len(owners)
    first, second = owners.index(0), owners.index(1)
    first_end, second_end = len(owners) - owners[::-1].index(0), len(owners) - owners[::-1].index(1)

    def part(start: int, end: int) -> Part:
        return Part(tuple(pair.ids[start:end]), tuple(types[start:end]))

    return PairFrame(
        part(0, first), part(first_end, second), part(second_end, len(owners)), types[first], types[second]
    )


def _longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """How many tokens of each are kept, as if the longer lost its last token until both fit."""
    shorter = min(first, second, room // 2)
    return (shorter, room - shorter) if first <= second else (room - shorter, shorter)
