"""Whether what a process takes stays as it is: the slope of its memory, descriptors and threads after a warm-up."""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.soak.processes import Seen

_MIB = 1 << 20
_WARM = 1 / 3
"""Of a life: while caches fill, memory grows."""
LONG_ENOUGH = 180.0
"""Seconds of a life that say something."""
_MOST = {"memory": 32.0 * _MIB, "descriptors": 16.0, "threads": 8.0}
"""By how much each may have risen over what is looked at, as the fitted line says."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Of one quantity of one process."""

    quantity: str
    first: float
    """Where the fitted line begins, after the warm-up."""
    rise: float
    per_hour: float

    @property
    def is_too_much(self) -> bool:
        return self.rise > max(_MOST[self.quantity], 0.1 * self.first)


def growths(seen: Sequence[tuple[float, Seen]]) -> list[Growth]:
    """Of a process that was seen at these times; none of one that lived too short."""
    if not seen or seen[-1][0] - seen[0][0] < LONG_ENOUGH:
        return []
    warm = seen[0][0] + _WARM * (seen[-1][0] - seen[0][0])
    kept = [(at, each) for at, each in seen if at >= warm]
    return [_growth(name, [(at, float(getattr(each, name))) for at, each in kept]) for name in _MOST]


def _growth(quantity: str, points: list[tuple[float, float]]) -> Growth:
    """By least squares, so that no single moment decides."""
    middle_x = sum(x for x, _ in points) / len(points)
    middle_y = sum(y for _, y in points) / len(points)
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    slope = sum((x - middle_x) * (y - middle_y) for x, y in points) / spread if spread else 0.0
    span = points[-1][0] - points[0][0]
    return Growth(quantity, middle_y + slope * (points[0][0] - middle_x), slope * span, slope * 3600)
