"""What got faster or slower between two reports, beyond noise: a bootstrap over repeats, and over requests inside them.

A difference counts when 95 % of the resampled ratios of medians lie on one side of 1 and the ratio itself is further
from 1 than a margin. Requests of one run wait for each other and are no independent samples, so a single run on either
side has twice the margin; a quantity with fewer than three numbers on a side is shown and not judged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from quire.bench.measure import Measure, median, percentile

Verdict = Literal["faster", "slower", "same", "unknown"]
_RESAMPLES = 500
_MOST_SAMPLES = 1000
"""Drawn of one run and quantity: fewer than there are only widen the interval."""
_SMALLEST = 1e-12
_FEWEST_RUNS = 3
"""Fewer numbers on a side, of a quantity that has one a run, can be apart by chance once in three times."""


@dataclass(frozen=True, slots=True)
class Change:
    """One quantity in both reports."""

    measure: Measure
    before: float
    after: float
    """Medians."""
    gain: float
    """Times better: above 1 is faster, whichever way the quantity counts."""
    interval: tuple[float, float] | None
    """Where 95 % of the resampled gains lie; None where it cannot be known."""
    verdict: Verdict


def compare(before: Sequence[Measure], after: Sequence[Measure], margin: float, seed: int = 0) -> list[Change]:
    """Of every quantity that both have with samples, in the order of the first report."""
    later = {measure.name: measure for measure in after}
    pairs = [(measure, later[measure.name]) for measure in before if measure.name in later]
    draw = Random(seed)
    return [_change(old, new, margin, draw) for old, new in pairs if old.samples and new.samples]


def _change(old: Measure, new: Measure, margin: float, draw: Random) -> Change:
    before, after = median(old.samples), median(new.samples)
    gain = _gain(before, after, old)
    if not _can_judge(old) or not _can_judge(new):
        return Change(old, before, after, gain, None, "unknown")
    gains = sorted(_gain(_resampled(old, draw), _resampled(new, draw), old) for _ in range(_RESAMPLES))
    low, high = percentile(gains, 2.5), percentile(gains, 97.5)
    is_lonely = min(len(old.runs), len(new.runs)) == 1
    bound = 1 + margin * (2 if is_lonely else 1)
    verdict: Verdict = "same"
    if low > 1 and gain > bound:
        verdict = "faster"
    elif high < 1 and gain < 1 / bound:
        verdict = "slower"
    return Change(old, before, after, gain, (low, high), verdict)


def _can_judge(measure: Measure) -> bool:
    return len(measure.samples) >= _FEWEST_RUNS


def _resampled(measure: Measure, draw: Random) -> float:
    """The median of runs drawn with replacement, each of samples drawn with replacement."""
    samples: list[float] = []
    for run in draw.choices([run for run in measure.runs if run], k=len(measure.runs)):
        samples += run if len(run) == 1 else draw.choices(run, k=min(len(run), _MOST_SAMPLES))
    return median(samples)


def _gain(before: float, after: float, measure: Measure) -> float:
    better, worse = (after, before) if measure.better == "higher" else (before, after)
    return 1.0 if better == worse else better / max(worse, _SMALLEST)
