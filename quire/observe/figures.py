"""Figures: what a front has counted, as plain data that processes send each other and that add up.

A front alone is rendered from its own figures; where there are several, from those of all of them, `merged`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Self, TypeVar

import msgspec

from quire.observe import catalog, histogram, rates
from quire.observe.histogram import Histogram
from quire.observe.rates import Window

Labels = tuple[str, ...]
"""The values of a metric's labels, in the catalog's order."""
Value = TypeVar("Value")


class Samples(msgspec.Struct, array_like=True):
    """Metrics of the catalog by name, and the present value of each by labels."""

    numbers: dict[str, dict[Labels, float]] = {}
    """Gauges and counters."""
    histograms: dict[str, dict[Labels, Histogram]] = {}

    def __or__(self, other: Self) -> "Samples":
        """Both; they have no metric in common."""
        return Samples(self.numbers | other.numbers, self.histograms | other.histograms)


class FrontFigures(msgspec.Struct, array_like=True):
    """What one front has counted since its start, or all fronts of a server together."""

    samples: Samples = msgspec.field(default_factory=Samples)
    """Of requests and of HTTP. Engines are not in it: all fronts hear the same of them."""
    rates: Window = msgspec.field(default_factory=Window)

    def retired(self) -> "FrontFigures":
        """What remains of a front that is gone: its counts."""
        kept = {name: rows for name, rows in self.samples.numbers.items() if catalog.BY_NAME[name].kind == "counter"}
        return FrontFigures(Samples(kept, self.samples.histograms))

    def totals(self) -> dict[str, int]:
        """Counts of finished requests, for /stats."""
        ends = self.samples.numbers.get(catalog.FINISHED.name, {})
        counts = {
            "requests": sum(ends.values()),
            "prompt_tokens": self._sum(catalog.REQUEST_PROMPT),
            "generation_tokens": self._sum(catalog.REQUEST_OUTPUT),
            "errors": sum(count for (_, reason), count in ends.items() if reason == "error"),
        }
        return {name: int(count) for name, count in counts.items()}

    def memory_bytes(self) -> int:
        """Resident memory of the fronts' processes."""
        return int(sum(self.samples.numbers.get(catalog.FRONT_MEMORY.name, {}).values()))

    def _sum(self, metric: catalog.Metric) -> float:
        return sum(each.sum for each in self.samples.histograms.get(metric.name, {}).values())


def merged(figures: Iterable[FrontFigures]) -> FrontFigures:
    """The sum: counters, histograms and rates add up, and so do gauges such as connections and memory."""
    every = list(figures)
    numbers = _summed((each.samples.numbers for each in every), sum)
    histograms = _summed((each.samples.histograms for each in every), histogram.merged)
    return FrontFigures(Samples(numbers, histograms), rates.merged(each.rates for each in every))


def bounded(metric: catalog.Metric, known: Collection[Labels], labels: Labels) -> Labels:
    """`labels`, or `other` as the last of them where the metric's limit of known ones is reached."""
    if metric.limit is None or len(known) < metric.limit or labels in known:
        return labels
    return (*labels[:-1], catalog.OTHER)


def _summed(
    tables: Iterable[Mapping[str, Mapping[Labels, Value]]], total: Callable[[list[Value]], Value]
) -> dict[str, dict[Labels, Value]]:
    """Fronts may have met different values of a label: its limit holds for all of them together."""
    found: dict[str, dict[Labels, list[Value]]] = {}
    for table in tables:
        for name, rows in table.items():
            metric, known = catalog.BY_NAME[name], found.setdefault(name, {})
            for labels, value in rows.items():
                known.setdefault(bounded(metric, known, labels), []).append(value)
    return {name: {labels: total(values) for labels, values in rows.items()} for name, rows in found.items()}
