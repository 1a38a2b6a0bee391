"""Samples as the text that Prometheus reads."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from quire.observe.catalog import ALL_METRICS, FRONTS, ROUTER_METRICS, Metric
from quire.observe.figures import Labels, Samples
from quire.observe.histogram import Histogram
from quire.observe.vllm_names import VLLM_NAMES


def written_out(samples: Samples, model: str, accept: str, *, vllm_names: bool = False) -> tuple[bytes, str]:
    """Samples and figures of this process, with their content type: OpenMetrics if the Accept header asks for it.

    With `vllm_names`, what vLLM measures too is there a second time, as vLLM calls it. Of several fronts any may be
    asked: its own figures would be another's the next time, and its counters would fall.
    """
    registry = CollectorRegistry()
    registry.register(_Families(samples, model, VLLM_NAMES if vllm_names else {}))
    if FRONTS.name not in samples.numbers:
        ProcessCollector(registry=registry)
    if "application/openmetrics-text" in accept:
        text: bytes = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
        return text, openmetrics.CONTENT_TYPE_LATEST
    return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4


class _Families(Collector):
    """Samples as a registry reads them."""

    def __init__(self, samples: Samples, model: str, second_names: Mapping[str, str]) -> None:
        """`second_names` by the catalog's: under these a metric is told once more."""
        self._samples = samples
        self._model = model
        self._second_names = second_names

    def collect(self) -> Iterator[Family]:
        """What prometheus_client calls to read everything."""
        numbers, histograms = self._samples.numbers, self._samples.histograms
        for metric in ALL_METRICS + ROUTER_METRICS:
            for name in filter(None, (metric.name, self._second_names.get(metric.name))):
                named = replace(metric, name=name)
                if metric.name in numbers:
                    yield _numbers(named, self._model, numbers[metric.name].items())
                elif metric.name in histograms:
                    yield _histograms(named, self._model, histograms[metric.name].items())


def _numbers(metric: Metric, model: str, rows: Iterable[tuple[Labels, float]]) -> Family:
    kind = GaugeMetricFamily if metric.kind == "gauge" else CounterMetricFamily
    family = kind(metric.name, metric.help, labels=("model_name", *metric.labels))
    for labels, value in rows:
        family.add_metric((model, *labels), value)
    return family


def _histograms(metric: Metric, model: str, rows: Iterable[tuple[Labels, Histogram]]) -> Family:
    """Buckets are made cumulative."""
    family = HistogramMetricFamily(metric.name, metric.help, labels=("model_name", *metric.labels))
    names = [*map(floatToGoString, metric.buckets), "+Inf"]
    for labels, histogram in rows:
        counts = histogram.counts or [0] * len(names)
        family.add_metric((model, *labels), list(zip(names, accumulate(counts), strict=True)), histogram.sum)
    return family
