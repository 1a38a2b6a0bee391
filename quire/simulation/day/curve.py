"""How busy the hours of a day are: one peak and one valley, as in the week of Azure's conversation trace."""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from math import cos, exp, pi
from random import Random

DAY = 86_400.0
PEAK = 1.7
"""Requests in the busiest minutes, by those of a mean one: the DynamoLLM paper says so of that trace."""
VALLEY = PEAK / 3.3
"""The same of the quietest minutes; also from there."""
_BUSIEST = 14 * 3600.0
"""Time of day of the peak: a choice, which nothing depends on."""
_BINS = 288
_NARROW = 0.7515
"""How narrow the peak is, so that the mean of all hours is 1 between that peak and that valley."""


def relative_rate(time: float) -> float:
    """Requests a second at a time of the day, by those of a mean second."""
    low, high = exp(-2 * _NARROW), 1.0
    shape = (exp(_NARROW * (cos(2 * pi * (time - _BUSIEST) / DAY) - 1)) - low) / (high - low)
    return VALLEY + (PEAK - VALLEY) * shape


def moments(count: int, random: Random, seconds: float = DAY) -> Iterator[float]:
    """So many random moments of the first `seconds` of a day, in order, as dense as the curve is high."""
    width = seconds / _BINS
    ends = list(accumulate(relative_rate((place + 0.5) * width) for place in range(_BINS)))
    counts = [0] * _BINS
    for _ in range(count):
        counts[bisect_right(ends, random.random() * ends[-1])] += 1
    for place, number in enumerate(counts):
        yield from sorted((place + random.random()) * width for _ in range(number))
