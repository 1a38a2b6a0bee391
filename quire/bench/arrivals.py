"""When requests are sent: all at once, at random moments of a rate, or as a trace has them. Plain numbers, no clock."""

import math
from collections.abc import Sequence
from itertools import accumulate
from random import Random


def random_arrivals(count: int, rate: float | None, burstiness: float, seed: int) -> list[float]:
    """Seconds from the start, rising, the first at 0. A rate of None sends everything at once.

    The gaps follow a gamma distribution of shape `burstiness` and mean 1 / rate: 1 is a Poisson process, less comes in
    bursts, more is steadier, and infinity is a fixed beat.
    """
    if rate is None:
        return [0.0] * count
    if math.isinf(burstiness):
        return [number / rate for number in range(count)]
    draw = Random(f"{seed} arrivals")
    scale = 1 / (rate * burstiness)
    gaps = (draw.gammavariate(burstiness, scale) for _ in range(count - 1))
    return list(accumulate(gaps, initial=0.0)) if count else []


def replayed_arrivals(moments: Sequence[float], speed: float) -> list[float]:
    """A trace's own moments, from 0, `speed` times as fast."""
    first = min(moments, default=0.0)
    return [(moment - first) / speed for moment in moments]
