"""Service-level objectives: how long the parts of an answer may take, and whether a request kept to all of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from quire.bench.record import RequestRecord
from quire.core.errors import ConfigError
from quire.core.nearest import did_you_mean

NAMES = ("ttft", "tpot", "itl", "e2e")


@dataclass(frozen=True, slots=True)
class Objectives:
    """Bounds in seconds, by name; for `itl`, no gap of a request may be longer."""

    bounds: dict[str, float]

    def __bool__(self) -> bool:
        return bool(self.bounds)

    def __str__(self) -> str:
        return " ".join(f"{name}:{bound * 1e3:g}" for name, bound in self.bounds.items())

    def are_met(self, record: RequestRecord) -> bool:
        """Whether a request ended well and within every bound. What it has none of, such as gaps, is within."""
        if not record.is_ok:
            return False
        longest = {
            "ttft": record.ttft,
            "tpot": record.tpot,
            "itl": max(record.itl, default=None),
            "e2e": record.e2e,
        }
        return all((value := longest[name]) is None or value <= bound for name, bound in self.bounds.items())

    def share_met(self, records: Sequence[RequestRecord]) -> float:
        """Of all requests; 0 without any."""
        return sum(map(self.are_met, records)) / len(records) if records else 0.0


def parse_objectives(parts: Sequence[str]) -> Objectives:
    """`ttft:200 tpot:50`, in milliseconds."""
    bounds: dict[str, float] = {}
    for part in (piece for given in parts for piece in given.split(",")):
        name, _, number = part.strip().partition(":")
        if name not in NAMES:
            raise ConfigError(
                f"--goodput has {part!r}, but what can be bounded is {', '.join(NAMES)}; write it like ttft:200."
                f"{did_you_mean(name, NAMES)}"
            )
        try:
            milliseconds = float(number)
        except ValueError:
            milliseconds = math.nan
        if not (math.isfinite(milliseconds) and milliseconds > 0):
            raise ConfigError(f"--goodput has {part!r}, but a bound is milliseconds above 0, such as {name}:200.")
        if name in bounds:
            raise ConfigError(f"--goodput bounds {name} twice; give each name once.")
        bounds[name] = milliseconds / 1e3
    return Objectives(bounds)
