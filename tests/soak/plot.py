"""A record as a picture: requests, faults and memory over the minutes of all runs."""

import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from quire.bench.svg_chart import Line, LineChart, beside, standalone

_MIB = 1 << 20
_PAIRS = (("server", "front"), ("engine", "rank"))
"""Kinds of processes that share a chart."""


def plot(runs: Sequence[list[dict[str, Any]]]) -> str:
    """An SVG file's text. Runs follow each other on one axis."""
    ended: list[tuple[float, float]] = []
    others: list[tuple[float, float]] = []
    faults: list[tuple[float, float]] = [(0.0, 0.0)]
    broken: list[tuple[float, float]] = [(0.0, 0.0)]
    memory: dict[str, list[tuple[float, float]]] = defaultdict(list)
    descriptors: dict[str, list[tuple[float, float]]] = defaultdict(list)
    offset = 0.0
    for lines in runs:
        before = 0.0
        for line in lines:
            minutes = (offset + line["at"]) / 60
            if line["type"] == "sample":
                seconds, before = max(line["at"] - before, 1.0), line["at"]
                total, whole = sum(line["outcomes"].values()), line["outcomes"].get("whole", 0)
                ended.append((minutes, whole / seconds * 60))
                others.append((minutes, (total - whole) / seconds * 60))
                for kind in itertools.chain(*_PAIRS):
                    if kind in line["processes"]:
                        count, taken, opened, _ = line["processes"][kind]
                        memory[kind].append((minutes, taken / count / _MIB))
                        descriptors[kind].append((minutes, opened / count))
            elif line["type"] == "fault":
                faults.append((minutes, faults[-1][1] + 1))
            elif line["type"] == "violation":
                broken.append((minutes, broken[-1][1] + 1))
        offset += max((line["at"] for line in lines), default=0.0)
    asked = [Line("whole, as the reference", ended), Line("left, late, refused", others)]
    struck = [Line("faults", faults, is_stepped=True), Line("broken promises", broken, is_stepped=True)]
    charts = [
        LineChart("Requests a minute", "minutes", asked),
        LineChart("Faults and broken promises so far", "minutes", struck),
        *(_of_pair("MiB", pair, memory) for pair in _PAIRS),
        *(_of_pair("Descriptors", pair, descriptors) for pair in _PAIRS),
    ]
    return standalone(beside([chart.svg() for chart in charts]))


def _of_pair(quantity: str, pair: tuple[str, str], points: dict[str, list[tuple[float, float]]]) -> LineChart:
    first, second = pair
    return LineChart(f"{quantity} each: {first}s and {second}s", "minutes", [Line(kind, points[kind]) for kind in pair])
