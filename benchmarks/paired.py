"""Ratios of runs that were interleaved: each round's pair makes one ratio, and their median and spread are told.

What a shared machine does to one run of a pair it mostly does to the other, so ratios of pairs vary less than the
figures themselves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

Better = Literal["lower", "higher"]


@dataclass(frozen=True, slots=True)
class Middle:
    """Samples in three numbers."""

    median: float
    least: float
    most: float

    def told(self, scale: float = 1.0) -> str:
        return f"{digits(self.median * scale)} ({digits(self.least * scale)}–{digits(self.most * scale)})"


def middle(samples: Sequence[float]) -> Middle:
    return Middle(median(samples), min(samples), max(samples))


def times_better(ours: Sequence[float], theirs: Sequence[float], better: Better) -> Middle:
    """Of every round, how many times better ours was than theirs."""
    pairs = zip(ours, theirs, strict=True)
    return middle([mine / other if better == "higher" else other / mine for mine, other in pairs])


def difference(ours: Sequence[float], theirs: Sequence[float]) -> Middle:
    """Of every round, by what share of theirs ours was larger."""
    return middle([mine / other - 1 for mine, other in zip(ours, theirs, strict=True)])


def digits(value: float) -> str:
    """Three of them, and all in front of the point."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
