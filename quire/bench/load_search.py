"""The highest load that still holds: some loads are tried in order, then the gap between good and bad is halved.

Knows nothing of what a load is: whoever measures says whether one held.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bracket:
    """The highest load that held and the lowest above it that did not; None where there was none."""

    good: float | None
    bad: float | None


def bracket(tried: dict[float, bool]) -> Bracket:
    """A load counts as good only below the first bad one: what held by luck above it holds no promise."""
    bad = min((load for load, held in tried.items() if not held), default=None)
    good = max((load for load, held in tried.items() if held and (bad is None or load < bad)), default=None)
    return Bracket(good, bad)


def search(loads: Sequence[float], refine: int, whole: bool, holds: Callable[[float], bool]) -> Bracket:
    """Try every load, rising, and then `refine` more between good and bad; `whole` for loads that are counts."""
    tried = {load: holds(load) for load in sorted(set(loads))}
    for _ in range(refine):
        found = bracket(tried)
        middle = between(found, whole)
        if middle is None:
            break
        tried[middle] = holds(middle)
    return bracket(tried)


def between(found: Bracket, whole: bool) -> float | None:
    """What to try next; None where nothing is left to learn."""
    if found.bad is None or found.good is None:
        return None
    middle = (found.good + found.bad) / 2
    if whole:
        middle = float(int(middle))
    return middle if found.good < middle < found.bad else None
