"""LengthPredictor: how many tokens a sequence is likely to still produce, from those that have ended."""

from math import log2

PRIOR_LENGTH = 256
"""Guess before anything has ended."""
BUCKETS_PER_DOUBLING = 4
NUM_BUCKETS = 20 * BUCKETS_PER_DOUBLING
HALF_LIFE = 4096
"""Ended sequences after which an observation counts half: the traffic of an hour ago is not today's."""


class LengthPredictor:
    """A histogram of output lengths on a logarithmic scale, forgetting slowly."""

    def __init__(self) -> None:
        self._weight = [0.0] * NUM_BUCKETS
        self._sum = [0.0] * NUM_BUCKETS
        self._gain = 1.0

    def observe(self, length: int) -> None:
        """A sequence ended after `length` output tokens."""
        bucket = _bucket(length)
        self._weight[bucket] += self._gain
        self._sum[bucket] += self._gain * length
        self._gain *= 2 ** (1 / HALF_LIFE)  # growing the new instead of shrinking all the old
        if self._gain > 1e12:
            self._weight = [weight / self._gain for weight in self._weight]
            self._sum = [total / self._gain for total in self._sum]
            self._gain = 1.0

    def remaining(self, produced: int, most: int) -> float:
        """Expected tokens still to come behind `produced`, of at most `most` in all."""
        first = _bucket(produced) + 1 if produced else 0
        weight = sum(self._weight[first:])
        # nothing known that long: as far as it has come, it is likely to go again
        expected = sum(self._sum[first:]) / weight - produced if weight else max(PRIOR_LENGTH, produced)
        return max(0.0, min(expected, most - produced))


def _bucket(length: int) -> int:
    return min(NUM_BUCKETS - 1, int(log2(length + 1) * BUCKETS_PER_DOUBLING))
