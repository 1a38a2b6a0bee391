"""Prefixes: which stretches of prompts an instance still has, and on which tier: device, host or disk.

Named stretches stand for the blocks that a real prefix cache knows by name; they are evicted whole, the least recently
used first, from the device to the host, from there to the disk, and from there for good.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from quire.simulation.day.conversation import Stretch

TIERS = ("device", "host", "disk")


@dataclass(slots=True)
class Found:
    """Tokens at the beginning of a prompt that need not be computed, by tier."""

    device: int = 0
    host: int = 0
    disk: int = 0

    @property
    def total(self) -> int:
        return self.device + self.host + self.disk


class Prefixes:
    """Of one instance; capacities are in tokens, and the device's changes with what runs there."""

    def __init__(self, device: int, host: int, disk: int) -> None:
        self._capacities = [device, host, disk]
        self._tiers: list[OrderedDict[int, int]] = [OrderedDict() for _ in TIERS]
        self._used = [0, 0, 0]
        self._to_host = 0

    def find(self, stretches: Sequence[Stretch]) -> Found:
        """What is there of a prompt, from its beginning on."""
        counts = [0, 0, 0]
        for stretch in stretches:
            place = next((each for each, tier in enumerate(self._tiers) if stretch.name in tier), None)
            if place is None:
                break
            have = self._tiers[place][stretch.name]
            counts[place] += min(have, stretch.tokens)
            if have < stretch.tokens:
                break
        return Found(*counts)

    def take(self, stretches: Sequence[Stretch]) -> None:
        """A sequence runs with this prompt: its own stretch, the last, is its to hold; the others are shared."""
        *shared, own = stretches
        for stretch in shared:
            self._put(0, stretch)
        self._drop(own.name)

    def give(self, own: Stretch) -> None:
        """What a sequence held when it ended may be used again."""
        self._put(0, own)

    def fit(self, device: int) -> int:
        """The device has room for so many tokens that nobody runs with. Returns how many went to the host since."""
        self._capacities[0] = device
        self._settle(0)
        moved, self._to_host = self._to_host, 0
        return moved

    def _put(self, place: int, stretch: Stretch) -> None:
        self._drop(stretch.name)
        self._tiers[place][stretch.name] = stretch.tokens
        self._used[place] += stretch.tokens
        self._settle(place)

    def _drop(self, name: int) -> None:
        for place, tier in enumerate(self._tiers):
            tokens = tier.pop(name, None)
            if tokens is not None:
                self._used[place] -= tokens

    def _settle(self, place: int) -> None:
        tier = self._tiers[place]
        while tier and self._used[place] > self._capacities[place]:
            name, tokens = tier.popitem(last=False)
            self._used[place] -= tokens
            below = next((each for each in range(place + 1, len(TIERS)) if self._capacities[each] >= tokens), None)
            if below is not None:
                self._to_host += tokens if below == 1 else 0
                self._tiers[below][name] = tokens
                self._used[below] += tokens
                self._settle(below)
