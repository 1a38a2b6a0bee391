"""Beam search over (token, logprob) lists, with the results of `transformers`. Plain numbers, no torch, no schedule.

In each step the best continuations of all beams are candidates, a few times more than there are beams. Those that end
compete for a place among the finished; the best of the others are the next beams.
"""

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

EarlyStopping = bool | Literal["never"]

Offer = Sequence[tuple[int, float]]
"""A beam's most likely next tokens and their logprobs."""


@dataclass(frozen=True, slots=True)
class Beam:
    """A sequence in the making."""

    tokens: tuple[int, ...]
    logprob: float
    """Of all its tokens together."""
    parent: int
    """Which of the beams before this step it continues."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A sequence that ended, with the token that ended it."""

    tokens: tuple[int, ...]
    score: float
    """Its logprob over its length to the power of the length penalty."""


class BeamSearch:
    """`early_stopping`: True ends with `width` finished sequences; False when no beam, were it to end now, would beat
    the worst of them; "never" when none could at any length.
    """

    def __init__(
        self,
        width: int,
        max_tokens: int,
        stop_ids: Iterable[int],
        length_penalty: float = 1.0,
        early_stopping: EarlyStopping = False,
    ) -> None:
        self.width = width
        self._max_tokens = max_tokens
        self._stop_ids = frozenset(stop_ids)
        self._length_penalty = length_penalty
        self._early_stopping = early_stopping
        self.beams = [Beam((), 0.0, 0)]
        self.finished: list[Finished] = []
        """Best first, at most `width`."""
        self.is_done = False

    @property
    def num_candidates(self) -> int:
        """Continuations a step looks at, and the length a beam's offer needs: `width` of them cannot end."""
        return max(2, 1 + len(self._stop_ids)) * self.width

    def advance(self, offers: Sequence[Offer]) -> list[Beam]:
        """One more token: `offers[i]` continues `beams[i]`. Returns the new beams, none when the search is done."""
        assert not self.is_done, "the search is done"
        candidates = self._candidates(offers)
        length = len(self.beams[0].tokens) + 1
        ends = [length == self._max_tokens or beam.tokens[-1] in self._stop_ids for beam in candidates]
        ranked = list(zip(candidates, ends, strict=True))
        # A continuation that only waits to replace one that ended must not itself end.
        self._finish([beam for beam, has_ended in ranked[: self.width] if has_ended], length)
        self.beams = [beam for beam, has_ended in ranked if not has_ended][: self.width]
        self.is_done = not self.beams or self._cannot_improve(length)
        if self.is_done:
            self.beams = []
        return self.beams

    def _candidates(self, offers: Sequence[Offer]) -> list[Beam]:
        continuations = (
            (beam.logprob + logprob, parent, token)
            for parent, (beam, offer) in enumerate(zip(self.beams, offers, strict=True))
            for token, logprob in offer
        )
        best = heapq.nlargest(self.num_candidates, continuations, key=lambda each: each[0])
        return [Beam((*self.beams[parent].tokens, token), logprob, parent) for logprob, parent, token in best]

    def _finish(self, beams: list[Beam], length: int) -> None:
        ended = [Finished(beam.tokens, self._score(beam, length)) for beam in beams]
        # sorting is stable: who finished first keeps its place against an equal
        self.finished = sorted(self.finished + ended, key=lambda each: -each.score)[: self.width]

    def _score(self, beam: Beam, length: int) -> float:
        return beam.logprob / math.pow(length, self._length_penalty)

    def _cannot_improve(self, length: int) -> bool:
        if len(self.finished) < self.width:
            return False
        if self._early_stopping is True:
            return True
        if self._early_stopping == "never" and self._length_penalty > 0:
            length = self._max_tokens
        return self._score(self.beams[0], length) <= self.finished[-1].score
