"""Admission: how much work may wait. More than that, or than can be done in time, is turned away at once."""

import math
from collections import deque

from quire.core.errors import Overloaded
from quire.core.sampling_params import SamplingParams
from quire.core.stats import EngineStats
from quire.serving.journal import Journal

FIRST_GUESS = 256.0
"""Output tokens expected of a sequence before any has ended."""
_MEMORY = 0.98
"""Weight of the past in the mean length of answers, a sequence."""
_RATE_SECONDS = 10.0
"""Seconds of steps over which an engine's rate is averaged."""
COLD_STEPS = 8
"""The first steps of an engine compile kernels, fill caches and read weights for the first time."""
LEAST_STEPS = 8
LEAST_SECONDS = 1.0
"""Steps, and seconds of them, before a rate is believed: refusing a request too early is worse than a long wait."""
_RECENT_STEPS = 64
_OUTLIER = 8.0
"""A step this many times longer than any recent one compiled something; it does not show how fast the engine is."""


class _EngineRate:
    """How fast one engine computes while requests wait for it: an engine with little to do shows no more than that."""

    def __init__(self) -> None:
        self.waiting = 0
        """Sequences without a row, when the engine last reported."""
        self._step = -1
        self._num_seen = 0
        self._num_counted = 0
        self._recent: deque[float] = deque(maxlen=_RECENT_STEPS)
        self._tokens = 0.0
        self._seconds = 0.0
        """Both fade with the seconds that later steps take."""

    @property
    def tokens_per_second(self) -> float | None:
        """None until enough steps were seen."""
        is_known = self._num_counted >= LEAST_STEPS and self._seconds >= LEAST_SECONDS
        return self._tokens / self._seconds if is_known else None

    def report(self, stats: EngineStats) -> None:
        was_waiting, self.waiting = self.waiting, stats.waiting
        if stats.step == self._step or stats.step_seconds <= 0:
            return
        self._step = stats.step
        self._num_seen += 1
        if self._num_seen <= COLD_STEPS:
            return
        is_outlier = bool(self._recent) and stats.step_seconds > _OUTLIER * max(self._recent)
        self._recent.append(stats.step_seconds)
        if was_waiting and stats.waiting and not is_outlier:
            self._count(stats.step_tokens, stats.step_seconds)

    def _count(self, tokens: int, seconds: float) -> None:
        past = math.exp(-seconds / _RATE_SECONDS)
        self._tokens = past * self._tokens + tokens
        self._seconds = past * self._seconds + seconds
        self._num_counted += 1


class Admission:
    """Knows how fast the engines are and how much they have to do."""

    def __init__(self, journal: Journal, most_tokens: int, most_wait: float | None) -> None:
        self._journal = journal
        self._most_tokens = most_tokens
        self._most_wait = most_wait
        self._expected = FIRST_GUESS
        self._engines: dict[int, _EngineRate] = {}
        """Of the engines that report; one that is lost or still starts is not here."""

    def stepped(self, replica: int, stats: EngineStats) -> None:
        """An engine reported."""
        self._engines.setdefault(replica, _EngineRate()).report(stats)

    def lost(self, replica: int) -> None:
        """An engine is gone; the one that replaces it has a rate of its own."""
        self._engines.pop(replica, None)

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
                f"{waiting:,} tokens are waiting and {tokens:,} more would exceed the {self._most_tokens:,} that may "
                f"wait; try again in about {max(1.0, wait):.0f} s",
                retry_after=max(1.0, wait),
            )
        for most, whose in ((self._most_wait, "the most allowed"), (deadline, "the request's deadline")):
            if most is not None and wait > most:
                raise Overloaded(
                    f"a request would wait about {wait:.0f} s now, and {most:g} s are {whose}; try again later",
                    retry_after=max(1.0, wait - most),
                )

    def predicted_wait(self) -> float:
        """Seconds until a request that came now would get a row; 0 while an engine has one, or no rate is known."""
        rate = self._tokens_per_second()
        if rate and all(engine.waiting for engine in self._engines.values()):
            return self._journal.waiting_work / rate
        return 0.0

    def _tokens_per_second(self) -> float:
        """Of all engines together; one whose rate is not known yet is taken to be as fast as the others."""
        known = [rate for engine in self._engines.values() if (rate := engine.tokens_per_second) is not None]
        return len(self._engines) * sum(known) / len(known) if known else 0.0
