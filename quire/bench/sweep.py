"""A sweep: one server under rising loads, and the highest of them at which enough requests keep to the objectives."""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal, cast

from quire.bench.load_config import LoadConfig
from quire.bench.load_search import bracket, search
from quire.bench.measure import Measure
from quire.bench.objectives import Objectives
from quire.bench.report import LoadPoint, Sweep
from quire.bench.run_summary import RunSummary
from quire.bench.serve_bench import ServeBench
from quire.core.errors import ConfigError

SweepOver = Literal["rate", "concurrency"]


class _Stopped(Exception):
    """Someone interrupted the sweep."""


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """Which loads to try."""

    over: SweepOver
    loads: tuple[float, ...]

    @property
    def is_whole(self) -> bool:
        return self.over == "concurrency"

    def at(self, load: LoadConfig, value: float) -> LoadConfig:
        """The load with one of its bounds replaced."""
        return replace(load, request_rate=value) if self.over == "rate" else replace(load, concurrency=int(value))


def parse_sweep(text: str) -> SweepPlan:
    """`rate=1,2,4` or `concurrency=1,8,64`."""
    over, _, numbers = text.partition("=")
    try:
        loads = tuple(float(number) for number in numbers.split(","))
    except ValueError:
        loads = ()
    wants_whole = over == "concurrency"
    ok = all(math.isfinite(load) and load > 0 and not (wants_whole and load % 1) for load in loads)
    if over not in ("rate", "concurrency") or not loads or not ok:
        raise ConfigError(f"--sweep is {text!r}, but it must be like rate=1,2,4 or concurrency=1,8,64.")
    return SweepPlan(cast("SweepOver", over), loads)


def run_sweep(
    bench: ServeBench,
    plan: SweepPlan,
    load: LoadConfig,
    repeats: int,
    objectives: Objectives,
    share: float,
    refine: int,
) -> tuple[list[LoadPoint], Sweep]:
    """Every point, by rising load, and what the search found; of an interrupted one, what there is."""
    points: list[LoadPoint] = []
    tried: dict[float, bool] = {}

    def holds(value: float) -> bool:
        point = bench.measure(plan.at(load, value), repeats, f"{plan.over} {value:g}", value)
        if point.runs:
            points.append(point)
        if bench.was_interrupted:
            raise _Stopped
        tried[value] = kept_share(point.runs) >= share
        return tried[value]

    with suppress(_Stopped):
        search(plan.loads, refine if objectives else 0, plan.is_whole, holds)
    points.sort(key=lambda point: point.load or 0.0)
    if not objectives or not tried:
        return points, Sweep(plan.over, "", share, None, None)
    found = bracket(tried)
    return points, Sweep(plan.over, str(objectives), share, found.good, found.bad)


def kept_share(runs: Sequence[RunSummary]) -> float:
    """Of all requests of all repeats; all of them where there are no objectives."""
    total = sum(run.requests for run in runs)
    return sum((1.0 if run.share_met is None else run.share_met) * run.requests for run in runs) / total


def measures_by_load(points: Sequence[LoadPoint], over: str) -> list[Measure]:
    """The quantities of every point, named with its load, so that two sweeps can be compared."""
    return [
        Measure(f"{over} {point.load:g}: {measure.name}", measure.unit, measure.better, measure.runs)
        for point in points
        for measure in point.measures
    ]
