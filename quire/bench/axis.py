"""An axis of a chart: which values it spans, where its marks stand, and where on the paper a value lies."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_GAPS = (4, 5)
"""How many there may be between marks, about."""
_ALIKE = 1e-6
"""Of a value: what is nearer to it is the same."""
_NOTHING = 1e-9
"""No quantity of a benchmark differs by so little."""
_LOG_DIGITS = (1.0, 2.0, 5.0)
_MOST_OF_LOG = 7
"""Marks of a logarithmic axis; with more of them, powers of ten alone."""


@dataclass(frozen=True, slots=True)
class Axis:
    """From `low` to `high`, at `begin` and `end` of the paper."""

    low: float
    high: float
    begin: float
    end: float
    marks: tuple[float, ...]
    is_log: bool = False

    def place(self, value: float) -> float:
        """Where a value lies; outside of the axis, at its end."""
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.is_log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return self.begin + (self.end - self.begin) * (at - low) / (high - low)

    def label(self, mark: float) -> str:
        """A mark's value, with no more digits than tell it from its neighbours."""
        return f"{mark:,.0f}" if abs(mark) >= 100 or mark == round(mark) else f"{mark:.3g}"


def linear_axis(values: Sequence[float], begin: float, end: float, *, from_zero: bool) -> Axis:
    """The narrowest axis that holds all values and begins and ends at a mark."""
    low, high = min(values), max(values)
    if from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high - low <= max(_ALIKE * max(abs(low), abs(high)), _NOTHING):
        apart = 0.1 * abs(high) if abs(high) > _NOTHING else 1.0
        low, high = low - apart * (not from_zero), high + apart
    choices = [_marks(low, high, _step((high - low) / count)) for count in _GAPS]
    marks = min(choices, key=lambda places: (places[-1] - places[0], len(places)))
    return Axis(marks[0], marks[-1], begin, end, marks)


def _marks(low: float, high: float, step: float) -> tuple[float, ...]:
    first, last = math.floor(low / step + _ALIKE), math.ceil(high / step - _ALIKE)
    return tuple(float(f"{number * step:.12g}") for number in range(first, last + 1))


def log_axis(values: Sequence[float], begin: float, end: float) -> Axis:
    """For values above 0 that span much; it begins and ends at them, with marks at 1, 2 and 5 of each power of ten."""
    low, high = min(values), max(values)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    marks = [digit * 10.0**power for power in powers for digit in _LOG_DIGITS]
    inside = [mark for mark in marks if low <= mark <= high]
    if len(inside) > _MOST_OF_LOG:
        inside = [10.0**power for power in powers if low <= 10.0**power <= high]
    return Axis(low, high, begin, end, tuple(inside), is_log=True)


def _step(least: float) -> float:
    """The next round number that is not below."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(digit * power for digit in _STEPS if digit * power >= least * (1 - 1e-9))
