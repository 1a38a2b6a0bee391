"""Histogram: how values are spread, to about one percent, in little memory; two of them add up."""

from math import exp, log
from typing import Self

import msgspec

GROWTH = log(1.02)
"""Each bucket is 2 % wider than the one before, so that its middle is within 1 % of what it holds."""
SMALLEST = 1e-6
"""Seconds; everything up to this counts as nothing."""
NOTHING = int(log(SMALLEST) // GROWTH)


class Percentiles(msgspec.Struct, frozen=True):
    """What a report says of a histogram."""

    count: int = 0
    mean: float = 0.0
    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0
    most: float = 0.0


class Histogram(msgspec.Struct):
    """Counts by logarithmic bucket."""

    buckets: dict[int, int] = {}
    count: int = 0
    total: float = 0.0
    most: float = 0.0

    def add(self, value: float, count: int = 1) -> None:
        """`count` times `value`."""
        bucket = int(log(value) // GROWTH) if value > SMALLEST else NOTHING
        self.buckets[bucket] = self.buckets.get(bucket, 0) + count
        self.count += count
        self.total += value * count
        self.most = max(value, self.most)

    def merge(self, other: Self) -> None:
        """Take in what another has counted."""
        for bucket, count in other.buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + count
        self.count += other.count
        self.total += other.total
        self.most = max(other.most, self.most)

    def percentile(self, share: float) -> float:
        """The value that `share` of all values do not exceed."""
        wanted, seen = share * self.count, 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen >= wanted:
                return 0.0 if bucket <= NOTHING else min(exp((bucket + 0.5) * GROWTH), self.most)
        return 0.0

    def percentiles(self) -> Percentiles:
        if not self.count:
            return Percentiles()
        p50, p90, p99 = (self.percentile(share) for share in (0.5, 0.9, 0.99))
        return Percentiles(self.count, self.total / self.count, p50, p90, p99, self.most)

    def curve(self) -> tuple[list[float], list[float]]:
        """Values and the share of all that do not exceed each: a cumulative distribution to draw."""
        values, shares, seen = [], [], 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            values.append(min(exp((bucket + 1) * GROWTH), self.most))
            shares.append(seen / self.count)
        return values, shares
