"""DraftLength: how many drafts the decodes of a step verify: as many as pay, and none where none do.

What a step yields follows from how often drafts were right, what it costs from how long such steps took. Both are
measured, on whatever device, so that there is nothing to set. It only ever sees counts and times.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from quire.config.speculation import draft_lengths

_MEMORY = 0.98
"""Weight of the past per step: about 50 steps are remembered."""
_WEIGHT_OF_GUESS = 8.0
"""Rows whose drafts were right as often as nobody knows yet; what is measured soon outweighs them."""
_GUESS = 0.7
"""How often a draft is right before any was verified, if those before it are: enough to try."""
_WARM = 2
"""Steps of a kind whose time says nothing: a GPU compiles kernels in the first and captures a graph in the second."""
_SMOOTHING = 0.2
"""Weight of a new time against those before."""
_WORTH = 1.02
"""How much more a step with drafts must yield in its time: what is measured is never exact."""
_REFRESH = 96
"""Steps after which a kind of step that is not chosen is taken once again, so that its figures stay true: at most a
hundredth of the time goes to steps that do not pay."""


@dataclass(slots=True)
class _Timing:
    """Of steps of one size with one number of drafts."""

    seen: int = 0
    seconds: float = 0.0
    last: int = 0
    """Which of the steps of its size was the last such."""

    def observe(self, seconds: float) -> None:
        self.seen += 1
        if self.seen == _WARM + 1:
            self.seconds = seconds
        elif self.seen > _WARM:
            self.seconds += _SMOOTHING * (seconds - self.seconds)

    @property
    def is_known(self) -> bool:
        return self.seen > _WARM


class DraftLength:
    """Of one engine, for drafts of one kind."""

    def __init__(self, most: int, method: str = "") -> None:
        """`most` drafts of a sequence can be verified in one step; `method` is how they are made."""
        self.most = most
        self.method = method
        self._lengths = draft_lengths(most)
        self._rows = [_WEIGHT_OF_GUESS] * most
        self._right = [_WEIGHT_OF_GUESS * _GUESS ** (place + 1) for place in range(most)]
        """By place among drafts: rows that verified one there, and those in which it and all before it were right."""
        self._timings: dict[tuple[int, int], _Timing] = {}
        """By size of the batch, as a power of two, and number of drafts."""
        self._steps: dict[int, int] = defaultdict(int)
        """By size of the batch: how many there were."""

    def choose(self, decodes: int) -> int:
        """Drafts that each of so many sequences may verify in the next step."""
        if not decodes:
            return 0
        size = decodes.bit_length()
        self._steps[size] += 1
        timings = {length: self._timing(decodes, length) for length in self._lengths}
        untried = [length for length, timing in timings.items() if not timing.is_known]
        if untried:
            return untried[-1]
        stale = min((0, self.most), key=lambda length: timings[length].last)
        if self._steps[size] - timings[stale].last > _REFRESH:
            return stale
        rates = {length: self._yield(length) / timing.seconds for length, timing in timings.items()}
        best = max(rates, key=rates.__getitem__)
        return best if rates[best] > _WORTH * rates[0] else 0

    def observe(self, decodes: int, length: int, accepted: Iterable[int], seconds: float | None) -> None:
        """A step of `decodes` that could have `length` drafts each: how many were right in each of them, and how long
        the step took; None where it computed prompts too.
        """
        if seconds is not None and seconds > 0 and decodes:
            timing = self._timing(decodes, length)
            timing.observe(seconds)
            timing.last = self._steps[decodes.bit_length()]
        if not length:
            return
        right = [0] * length
        for count in accepted:
            for place in range(count):
                right[place] += 1
        for place in range(length):
            self._rows[place] = _MEMORY * self._rows[place] + decodes
            self._right[place] = _MEMORY * self._right[place] + right[place]

    def _yield(self, length: int) -> float:
        """Tokens that a sequence is to expect of a step."""
        return 1.0 + sum(self._right[place] / self._rows[place] for place in range(length))

    def _timing(self, decodes: int, length: int) -> _Timing:
        return self._timings.setdefault((decodes.bit_length(), length), _Timing())
