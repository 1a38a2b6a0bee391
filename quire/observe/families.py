"""From a metric of the catalog and its present values to what prometheus_client writes out."""

from collections.abc import Iterable
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.utils import floatToGoString

from quire.observe.catalog import Metric
from quire.observe.histogram import Histogram

Labels = tuple[str, ...]


def numbers(metric: Metric, model: str, rows: Iterable[tuple[Labels, float]]) -> Family:
    """A gauge or a counter; a row holds the values of `metric.labels` and a number."""
    kind = GaugeMetricFamily if metric.kind == "gauge" else CounterMetricFamily
    family = kind(metric.name, metric.help, labels=("model_name", *metric.labels))
    for labels, value in rows:
        family.add_metric((model, *labels), value)
    return family


def histograms(metric: Metric, model: str, rows: Iterable[tuple[Labels, Histogram]]) -> Family:
    """A histogram, its buckets made cumulative."""
    family = HistogramMetricFamily(metric.name, metric.help, labels=("model_name", *metric.labels))
    names = [*map(floatToGoString, metric.buckets), "+Inf"]
    for labels, histogram in rows:
        buckets = list(zip(names, accumulate(histogram.counts), strict=True))
        family.add_metric((model, *labels), buckets, histogram.sum)
    return family


class BoundedLabel:
    """Lets through the first few distinct values of a label and calls the rest `other`: no client grows /metrics."""

    OTHER = "other"

    def __init__(self, limit: int, known: Iterable[str] = ()) -> None:
        self._limit = limit
        self._known = set(known)

    def __call__(self, value: str) -> str:
        if value in self._known:
            return value
        if len(self._known) >= self._limit:
            return self.OTHER
        self._known.add(value)
        return value
