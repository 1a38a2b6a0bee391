"""Admission: how much work may wait. More than that, or than can be done in time, is turned away at once."""

import math

from quire.core.errors import Overloaded
from quire.core.sampling_params import SamplingParams
from quire.core.stats import EngineStats
from quire.serving.journal import Journal

FIRST_GUESS = 256.0
"""Output tokens expected of a sequence before any has ended."""
_MEMORY = 0.98
"""Weight of the past in the mean length of answers, a sequence."""
_RATE_SECONDS = 10.0
"""Seconds of stepping over which the rate of an engine is averaged."""


class Admission:
    """Knows how fast the engines are and how much they have to do."""

    def __init__(self, journal: Journal, most_tokens: int, most_wait: float | None) -> None:
        self._journal = journal
        self._most_tokens = most_tokens
        self._most_wait = most_wait
        self._expected = FIRST_GUESS
        self._rates: dict[int, float] = {}
        """Tokens a second that each engine computes while it steps."""
        self._steps: dict[int, int] = {}
        self._waiting: dict[int, int] = {}

    def stepped(self, replica: int, stats: EngineStats) -> None:
        """An engine reported."""
        self._waiting[replica] = stats.waiting
        if stats.step == self._steps.get(replica) or stats.step_seconds <= 0:
            return
        self._steps[replica] = stats.step
        rate = stats.step_tokens / stats.step_seconds
        weight = 1 - math.exp(-stats.step_seconds / _RATE_SECONDS)
        before = self._rates.get(replica, rate)
        self._rates[replica] = before + weight * (rate - before)

    def lost(self, replica: int) -> None:
        """An engine is gone; its speed is learnt anew."""
        for known in (self._rates, self._steps, self._waiting):
            known.pop(replica, None)

    def answered(self, tokens: int) -> None:
        """A sequence ended with this many tokens."""
        self._expected = _MEMORY * self._expected + (1 - _MEMORY) * tokens

    def work(self, prompt_tokens: int, params: SamplingParams) -> float:
        """Tokens that a request is expected to cost."""
        most = math.inf if params.max_tokens is None else params.max_tokens
        return prompt_tokens + params.num_sequences * min(self._expected, most)

    def check(self, tokens: int, deadline: float | None) -> None:
        """Raise Overloaded unless `tokens` more prompt tokens may wait, for a request with this many seconds."""
        waiting, wait = self._journal.waiting_tokens, self.predicted_wait()
        if waiting and waiting + tokens > self._most_tokens:
            raise Overloaded(
                f"{waiting:,} tokens are waiting and {tokens:,} more would exceed the {self._most_tokens:,} that may; "
                f"try again in about {wait:.0f} s",
                retry_after=max(1.0, wait),
            )
        for most, whose in ((self._most_wait, "the most allowed"), (deadline, "the request's deadline")):
            if most is not None and wait > most:
                raise Overloaded(
                    f"a request would wait about {wait:.0f} s now, and {most:g} s are {whose}; try again later",
                    retry_after=max(1.0, wait - most),
                )

    def predicted_wait(self) -> float:
        """Seconds until a request that came now would get a row; 0 while engines take in all that comes."""
        rate = sum(self._rates.values())
        return self._journal.waiting_work / rate if rate and any(self._waiting.values()) else 0.0
