"""DraftLength: how many drafts the decodes of a step verify: as many as pay, and none where none do.

What a step yields follows from how often drafts were right, what it costs from how long such steps took. Both are
measured, on whatever device, so that there is nothing to set. It only ever sees counts and times.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from quire.config.speculation import draft_lengths

_MEMORY = 0.98
"""Weight of the past per step: about 50 steps are remembered."""
_WEIGHT_OF_GUESS = 2.0
"""Rows whose drafts were right as often as nobody knows yet; what is measured soon outweighs them."""
_GUESS = 0.7
"""How often a draft is right before any was verified, if those before it are: enough to try."""
_WARM = 2
"""Steps of a kind whose time says nothing: a GPU compiles kernels in the first and captures a graph in the second."""
_SMOOTHING = 0.1
"""Weight of a new time against those before, of which there are some."""
_WORTH = 1.02
"""How much more a step with drafts must yield in its time: what is measured is never exact."""
_REFRESH = 96
"""Steps with drafts after which one goes without, so that figures of both stay true."""
_VERIFYING = 2
"""Steps of a trial that verify drafts; those before them make the first ones."""
_FEWEST_BETWEEN = 16
"""Steps from one trial to the next, at least."""
_MOST_BETWEEN = 4096
_BETWEEN_IF_SOME_PAY = 512
"""The same where fewer drafts than the most pay: what more of them would bring is seen in trials alone."""
_MOST_LOST = 12
"""Plain steps whose time drafts may cost in one go: whatever was measured, it was wrong then."""
_WEIGHT_OF_OTHERS = 8.0
"""Rows that count as if grammars had forced behind them what they force on average."""
_SHARE_OF_TRIALS = 0.005
"""Of the time, for trials that do not pay: one that has cost more is not repeated as soon."""


@dataclass(slots=True)
class _Timing:
    """Of steps of one size with one number of drafts."""

    seen: int = 0
    measured: int = 0
    seconds: float = 0.0
    last: int = 0
    """Which of the steps of its size was the last such."""

    def observe(self, seconds: float | None) -> None:
        """None: it took a time that says nothing of others."""
        self.seen += 1
        if self.seen > _WARM and seconds is not None:
            self.measured += 1
            self.seconds += max(_SMOOTHING, 1 / self.measured) * (seconds - self.seconds)

    @property
    def is_known(self) -> bool:
        return self.measured > 0


class _Accepted:
    """How often drafts were right in steps of one size that had any to verify. It differs between sizes: of many
    sequences only some may have drafts."""

    def __init__(self, most: int) -> None:
        self._rows = [_WEIGHT_OF_GUESS] * most
        self._right = [_WEIGHT_OF_GUESS * _GUESS ** (place + 1) for place in range(most)]
        """By place among drafts: rows, and those in which the draft there and all before it were right."""

    def observe(self, decodes: int, length: int, accepted: Iterable[int]) -> None:
        right = [0] * length
        for count in accepted:
            for place in range(count):
                right[place] += 1
        for place in range(length):
            self._rows[place] = _MEMORY * self._rows[place] + decodes
            self._right[place] = _MEMORY * self._right[place] + right[place]

    def forget(self, decodes: int, length: int) -> None:
        """What was right long ago, behind so many drafts, counts no more than what two steps will say."""
        for place, rows in enumerate(self._rows[length:], length):
            share = min(1.0, 2 * decodes / rows)
            self._rows[place] *= share
            self._right[place] *= share

    def tokens(self, length: int) -> float:
        """What a sequence is to be given of a step: what is drawn, and right drafts."""
        return 1.0 + sum(self._right[place] / self._rows[place] for place in range(length))


class _Forced:
    """How many tokens grammars forced behind those of a row. Where drafts have said some of these already, fewer are
    left: a right draft that would have been forced has gained nothing."""

    def __init__(self) -> None:
        self._rows = [0.0, 0.0]
        self._tokens = [0.0, 0.0]
        """In steps without drafts, and in those that verified some."""

    def observe(self, decodes: int, length: int, forced: int) -> None:
        kind = length > 0
        self._rows[kind] = _MEMORY * self._rows[kind] + decodes
        self._tokens[kind] = _MEMORY * self._tokens[kind] + forced

    def tokens(self, length: int) -> float:
        """What a sequence is to be given beside. Drafts make nothing forced that would not be without them, though
        there may be drafts just where much is."""
        total = sum(self._tokens)
        if not total:
            return 0.0
        usual = total / sum(self._rows)
        without, beside = (
            (tokens + _WEIGHT_OF_OTHERS * usual) / (rows + _WEIGHT_OF_OTHERS)
            for tokens, rows in zip(self._tokens, self._rows, strict=True)
        )
        return min(without, beside) if length else without


@dataclass(slots=True)
class _Size:
    """Steps of batches of one size."""

    accepted: _Accepted
    trial: int
    """Steps of a trial."""
    forced: _Forced = field(default_factory=_Forced)
    steps: int = 0
    """How many there were."""
    timings: dict[int, _Timing] = field(default_factory=lambda: defaultdict(_Timing))
    """By number of drafts."""
    left_of_trial: int = 0
    last_with_most: int = -_MOST_BETWEEN
    """Which of the steps had as many drafts as there may be."""
    lost: float = 0.0
    """Seconds that steps with drafts have taken longer than their tokens would have without, since the last trial
    began."""

    def is_due(self, best: int) -> bool:
        """Whether the most drafts may be tried again, where fewer pay best."""
        allowed = _SHARE_OF_TRIALS * self.timings[0].seconds
        fewest = _BETWEEN_IF_SOME_PAY if best else _FEWEST_BETWEEN
        between = min(max(self.lost / allowed, fewest), _MOST_BETWEEN)
        return self.steps - self.last_with_most > between

    def observe(self, length: int, seconds: float) -> None:
        """How long a step took that had so many drafts to verify."""
        timing = self.timings[length]
        timing.last = self.steps
        timing.observe(seconds)

    def count_lost(self, length: int, seconds: float, accepted: float) -> None:
        """What a step that verified drafts took longer than its tokens would have without; a machine that paused is no
        fault of drafts. Of what grammars force the average counts: it is much now and nothing then."""
        timing, plain = self.timings[length], self.timings[0]
        if timing.seen >= _WARM:
            usual = timing.seconds if timing.is_known else seconds
            steps = 1 if timing.is_known else self.trial  # those before it were not measured
            gained = (1.0 + accepted + self.forced.tokens(length)) / self.tokens(0)
            self.lost += steps * (min(seconds, 2 * usual) - gained * plain.seconds)

    def tokens(self, length: int) -> float:
        """What a sequence is to expect of a step."""
        return self.accepted.tokens(length) + self.forced.tokens(length)

    def begin_trial(self, decodes: int, best: int) -> None:
        """The step that is planned is its first."""
        self.left_of_trial = self.trial - 1
        self.lost = 0.0
        self.accepted.forget(decodes, best)


class DraftLength:
    """Of one engine, for drafts of one kind."""

    def __init__(
        self,
        most: int,
        method: str = "",
        *,
        any_length: bool = False,
        by_a_model: bool = False,
        most_decodes: int | None = None,
        num_stages: int = 1,
    ) -> None:
        """`most` drafts of a sequence can be verified in one step, or `any_length` up to that; `method` is how they are
        made: `by_a_model` that takes its time whether they come to be verified or not. Steps of more than
        `most_decodes` sequences have none, whatever pays. In a pipeline of `num_stages` sequences take turns: drafts
        are verified so many steps after the one that made them."""
        self.most = most
        self.method = method
        self._by_a_model = by_a_model
        self._most_decodes = most_decodes
        self._lengths = draft_lengths(most, any_length=any_length)
        self._sizes: dict[int, _Size] = defaultdict(lambda: _Size(_Accepted(most), num_stages + _VERIFYING))
        """By size of the batch, as a power of two."""
        self._num_stages = num_stages
        self._run = 0
        """How many of the last steps that were observed were to have any."""

    def choose(self, decodes: int) -> int:
        """Drafts that each of so many sequences may verify in the next step."""
        if not decodes or (self._most_decodes is not None and decodes > self._most_decodes):
            return 0
        size = self._sizes[decodes.bit_length()]
        size.steps += 1
        length = self._choose(size, decodes)
        if length == self.most:
            size.last_with_most = size.steps
        return length

    def observe(
        self,
        decodes: int,
        length: int,
        accepted: Iterable[int],
        seconds: float | None,
        *,
        verified: bool = True,
        forced: int = 0,
    ) -> None:
        """A step of `decodes` that could have `length` drafts each: how many were right in each of them, and how long
        the step took; None where it computed prompts too. `verified`: whether any sequence had a draft to verify.
        `forced`: tokens that grammars added to those of all of them.
        """
        if not decodes:
            return
        run, self._run = self._run, self._run + 1 if length else 0
        size, right = self._sizes[decodes.bit_length()], list(accepted)
        # whoever takes time to draft does so in the first step that wants drafts, for those behind it to verify; in a
        # pipeline it is the first of each turn
        is_first = length > 0 and run < self._num_stages
        verified = verified or self._by_a_model
        size.forced.observe(decodes, length if verified else 0, forced)
        if seconds is not None and seconds > 0:
            if length and verified:
                size.count_lost(length, seconds, sum(right) / decodes)
            if is_first:
                size.timings[length].observe(None)
            else:
                size.observe(length if verified else 0, seconds)
        if length and verified and not is_first:
            size.accepted.observe(decodes, length, right)

    def _choose(self, size: _Size, decodes: int) -> int:
        if not size.timings[0].is_known:  # whoever comes first does not pay for what is to be found out
            return 0
        if size.left_of_trial:
            size.left_of_trial -= 1
            return self.most
        best = self._best(size)
        if best != self.most and size.is_due(best):
            size.begin_trial(decodes, best)
            return self.most
        return 0 if size.steps - size.timings[0].last > _REFRESH else best

    def _best(self, size: _Size) -> int:
        """Whatever promises most tokens a second."""
        plain, all_of_them = size.timings[0].seconds, size.timings[self.most]
        if not all_of_them.is_known or size.lost > _MOST_LOST * plain:
            return 0
        rates = {length: size.tokens(length) / self._seconds(size, length) for length in self._lengths}
        best = max(rates, key=rates.__getitem__)
        return best if rates[best] > _WORTH * rates[0] else 0

    def _seconds(self, size: _Size, length: int) -> float:
        """Of a step; of one that was never taken, the least that others let hope for, so that it is taken if it may be
        the best."""
        timings = size.timings
        if timings[length].is_known:
            return timings[length].seconds
        plain = timings[0].seconds
        others = {other for other in self._lengths if 0 < other < length and timings[other].is_known} | {self.most}
        return plain + min((timings[other].seconds - plain) * length / other for other in others)
