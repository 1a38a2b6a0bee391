"""Timeline: what a replica did over time, in a bounded number of equal bins; two of them add up."""

from math import floor
from typing import Self

import msgspec

MOST_BINS = 512
FINEST = 2.0**-4
"""Seconds of the first bins; they double whenever time runs past the last one."""


class Bin(msgspec.Struct, array_like=True):
    """Sums over one stretch of time. Those in seconds are levels times how long they lasted."""

    output_tokens: float = 0.0
    input_tokens: float = 0.0
    running: float = 0.0
    waiting: float = 0.0
    used: float = 0.0
    """Share of the KV blocks."""
    busy: float = 0.0

    def add(self, other: Self, share: float = 1.0) -> None:
        self.output_tokens += other.output_tokens * share
        self.input_tokens += other.input_tokens * share
        self.running += other.running * share
        self.waiting += other.waiting * share
        self.used += other.used * share
        self.busy += other.busy * share


class Timeline(msgspec.Struct):
    """Bins of `width` seconds from time 0 on. Widths are powers of two times the finest, so that any two fit."""

    width: float = FINEST
    bins: list[Bin] = []

    def add(self, start: float, end: float, step: Bin) -> None:
        """A step that ran from `start` to `end`; its sums are spread evenly over that time."""
        last = floor(end / self.width)
        while last >= MOST_BINS:
            self._coarsen()
            last = floor(end / self.width)
        while len(self.bins) <= last:
            self.bins.append(Bin())
        first = floor(start / self.width)
        if first == last:
            self.bins[last].add(step)
            return
        for position in range(first, last + 1):
            inside = min(end, (position + 1) * self.width) - max(start, position * self.width)
            self.bins[position].add(step, inside / (end - start))

    def merge(self, other: Self) -> None:
        """Take in another timeline of the same clock."""
        while self.width < other.width:
            self._coarsen()
        factor = round(self.width / other.width)
        for position, step in enumerate(other.bins):
            while len(self.bins) <= position // factor:
                self.bins.append(Bin())
            self.bins[position // factor].add(step)

    def _coarsen(self) -> None:
        self.width *= 2
        for left, right in zip(self.bins[::2], self.bins[1::2], strict=False):
            left.add(right)
        self.bins = self.bins[::2]
