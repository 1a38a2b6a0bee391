"""A measured quantity: samples by repeat, its unit and which way is better; and samples in few numbers."""

import math
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from quire.core.errors import ConfigError

Better = Literal["lower", "higher"]


class Measure(msgspec.Struct, frozen=True):
    """One quantity of a benchmark. A run that measures it once has one sample, one that measures requests has many."""

    name: str
    unit: str
    better: Better
    runs: list[list[float]]
    """The samples of every repeat."""

    @property
    def samples(self) -> list[float]:
        return [sample for run in self.runs for sample in run]

    @property
    def is_single(self) -> bool:
        """One sample a run, as a throughput has."""
        return all(len(run) <= 1 for run in self.runs)


class Spread(msgspec.Struct, frozen=True):
    """How samples are spread."""

    count: int
    mean: float
    deviation: float
    least: float
    most: float
    percentiles: dict[str, float]
    """`p50`, `p99` and so on."""

    @property
    def median(self) -> float:
        return self.percentiles["p50"]


def spread(samples: Iterable[float], percentiles: Sequence[float]) -> Spread | None:
    """None without samples. The 50th percentile is always there."""
    ordered = sorted(samples)
    if not ordered:
        return None
    mean = math.fsum(ordered) / len(ordered)
    deviation = math.sqrt(math.fsum((sample - mean) ** 2 for sample in ordered) / len(ordered))
    wanted = sorted({50.0, *percentiles})
    found = {percentile_name(share): percentile(ordered, share) for share in wanted}
    return Spread(len(ordered), mean, deviation, ordered[0], ordered[-1], found)


def percentile(ordered: Sequence[float], share: float) -> float:
    """Of rising samples, read linearly between neighbours; `share` in percent."""
    place = (len(ordered) - 1) * share / 100
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def median(samples: Iterable[float]) -> float:
    return percentile(sorted(samples), 50)


def percentile_name(share: float) -> str:
    """`p50`, `p99.9`."""
    return f"p{share:g}"


def parse_percentiles(text: str) -> tuple[float, ...]:
    """`50,90,99.9` as numbers."""
    try:
        shares = tuple(float(part) for part in text.split(","))
    except ValueError:
        shares = ()
    if not shares or not all(0 <= share <= 100 for share in shares):
        raise ConfigError(
            f"--percentiles is {text!r}, but it must be numbers from 0 to 100 with commas between them, such as 50,99."
        )
    return shares
