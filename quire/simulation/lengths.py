"""How long prompts and answers are: a fixed number, a range, or like the conversations of ShareGPT."""

import re
from dataclasses import dataclass
from math import log
from random import Random
from typing import Protocol

from quire.core.errors import ConfigError
from quire.simulation.limits import LONGEST

SHAREGPT = "sharegpt"
_RANGE = re.compile(r"(\d+)(?:\s*[:-]\s*(\d+))?")


class Lengths(Protocol):
    """Draws lengths in tokens, at least 1."""

    @property
    def mean(self) -> float: ...

    def draw(self, random: Random) -> int: ...


@dataclass(frozen=True, slots=True)
class Between:
    """Every length from `low` to `high` equally likely."""

    low: int
    high: int

    @property
    def mean(self) -> float:
        return (self.low + self.high) / 2

    def draw(self, random: Random) -> int:
        return self.low if self.low == self.high else random.randint(self.low, self.high)


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Most are short and a few are very long; `spread` is the standard deviation of the logarithm."""

    mean: float
    spread: float

    def draw(self, random: Random) -> int:
        return max(1, round(random.lognormvariate(log(self.mean) - self.spread**2 / 2, self.spread)))


# The means are those of the ShareGPT data in the PagedAttention paper; the spreads are ours and give its long tails.
SHAREGPT_INPUT = LogNormal(mean=161, spread=1.4)
SHAREGPT_OUTPUT = LogNormal(mean=338, spread=0.9)


def parse_lengths(text: str, flag: str, sharegpt: Lengths) -> Lengths:
    """`512`, `100:1024` or `sharegpt`."""
    if text == SHAREGPT:
        return sharegpt
    match = _RANGE.fullmatch(text.strip())
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= low <= high <= LONGEST:
        raise ConfigError(
            f"{flag} is {text!r}, but it must be a number of tokens (512), a range (100:1024) from 1 to {LONGEST}, "
            f"or {SHAREGPT}."
        )
    return Between(low, high)
