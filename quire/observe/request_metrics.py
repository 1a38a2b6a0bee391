"""Metrics of requests: tokens as they come, and where a request's time went once it has ended. Tenants are no label."""

from typing import get_args

from quire.core.stats import FinishedRequest
from quire.core.status import FinishReason
from quire.observe import catalog
from quire.observe.figures import Labels, Samples
from quire.observe.histogram import Histogram

_COUNTERS = tuple(metric for metric in catalog.REQUEST_METRICS if metric.labels == ("engine",) and not metric.buckets)
_HISTOGRAMS = tuple(metric for metric in catalog.REQUEST_METRICS if metric.buckets)
_GAP_BOUNDS = catalog.ITL.buckets


class _Engine:
    """What came out of one replica, through all the processes it had."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys((metric.name for metric in _COUNTERS), 0)
        self.ends: dict[str, int] = dict.fromkeys(get_args(FinishReason), 0)
        self.histograms = {metric.name: Histogram.over(metric.buckets) for metric in _HISTOGRAMS}
        # Looked up for every token; the rest can afford a dictionary.
        self.gaps = self.histograms[catalog.ITL.name]
        self.output_tokens = 0

    def observe(self, metric: catalog.Metric, value: float) -> None:
        self.histograms[metric.name].observe(metric.buckets, max(value, 0.0))

    def add(self, metric: catalog.Metric, amount: int) -> None:
        self.counts[metric.name] += amount


class RequestMetrics:
    """One row a replica."""

    def __init__(self, replicas: int) -> None:
        self._engines = {replica: _Engine() for replica in range(replicas)}

    def first_token(self, replica: int, seconds: float, prompt_tokens: int, count: int) -> None:
        engine = self._engine(replica)
        engine.observe(catalog.TTFT, seconds)
        engine.add(catalog.PROMPT_TOKENS, prompt_tokens)
        engine.output_tokens += count

    def tokens(self, replica: int, seconds_each: float | None, count: int) -> None:
        engine = self._engine(replica)
        engine.output_tokens += count
        if seconds_each is not None:
            engine.gaps.observe(_GAP_BOUNDS, seconds_each, count)

    def finished(self, record: FinishedRequest) -> None:
        engine = self._engine(record.replica)
        engine.ends[record.reason] += 1
        engine.add(catalog.PROMPT_CACHED, record.cached_tokens)
        engine.add(catalog.MOVED, record.moves)
        engine.observe(catalog.REQUEST_PROMPT, record.prompt_tokens)
        engine.observe(catalog.REQUEST_OUTPUT, record.output_tokens)
        engine.observe(catalog.PARAMS_N, record.n)
        if record.max_tokens is not None:
            engine.observe(catalog.PARAMS_MAX_TOKENS, record.max_tokens)
        _observe_times(engine, record)

    def samples(self) -> Samples:
        """As it is now."""
        rows = [((str(replica),), engine) for replica, engine in self._engines.items()]
        numbers: dict[str, dict[Labels, float]] = {
            metric.name: {labels: engine.counts[metric.name] for labels, engine in rows} for metric in _COUNTERS
        }
        numbers[catalog.OUTPUT_TOKENS.name] = {labels: engine.output_tokens for labels, engine in rows}
        numbers[catalog.FINISHED.name] = {
            (*labels, reason): count for labels, engine in rows for reason, count in engine.ends.items()
        }
        histograms: dict[str, dict[Labels, Histogram]] = {
            metric.name: {labels: engine.histograms[metric.name].copy() for labels, engine in rows}
            for metric in _HISTOGRAMS
        }
        return Samples(numbers, histograms)

    def _engine(self, replica: int) -> _Engine:
        engine = self._engines.get(replica)
        if engine is None:
            engine = self._engines[replica] = _Engine()
        return engine


def _observe_times(engine: _Engine, record: FinishedRequest) -> None:
    """Phases that a request never reached are not observed; one that ended in the queue was there all the time."""
    engine.observe(catalog.E2E, record.finished - record.arrival)
    scheduled, first = record.first_scheduled, record.first_token
    engine.observe(catalog.QUEUE, (record.finished if scheduled is None else scheduled) - record.arrival)
    if scheduled is None:
        return
    engine.observe(catalog.INFERENCE, record.finished - scheduled)
    if first is None:
        return
    engine.observe(catalog.PREFILL, first - scheduled)
    engine.observe(catalog.DECODE, record.finished - first)
    tokens_each = record.output_tokens / record.n
    if tokens_each > 1:
        engine.observe(catalog.TPOT, (record.finished - first) / (tokens_each - 1))
