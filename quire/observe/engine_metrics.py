"""Metrics of engines, from the stats they send after a step. Keeps the last stats; sums are made when someone asks."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from quire.core.stats import EngineStats
from quire.observe import catalog
from quire.observe.families import BoundedLabel, Labels, histograms, numbers
from quire.observe.histogram import Histogram

_GAUGES = {
    catalog.RUNNING: "running",
    catalog.WAITING: "waiting",
    catalog.HELD: "held",
    catalog.KV_WASTE: "kv_waste",
    catalog.DEVICE_MEMORY: "device_memory_bytes",
    catalog.DEVICE_MEMORY_TOTAL: "device_memory_total",
    catalog.ENGINE_MEMORY: "memory_bytes",
}
_TOTALS = {
    catalog.STEPS: "step",
    catalog.PREFIX_QUERIES: "total_prefix_tokens",
    catalog.PREFIX_HITS: "total_prefix_hits",
    catalog.STEPS_FAILED: "total_steps_failed",
    catalog.OUT_OF_MEMORY: "total_out_of_memory",
}
_PREEMPTIONS = {"recompute": "total_preemptions_recompute", "swap": "total_preemptions_swap"}
_RESTARTED = (*_TOTALS.values(), *_PREEMPTIONS.values())
"""Counts that an engine's replacement starts again from 0."""
_MAX_REASONS = 16


class _Engine:
    """One replica: the engine it has now, and what those before it left."""

    __slots__ = ("batch_size", "before", "busy", "given_up", "lost", "stats", "step_seconds", "step_tokens", "up")

    def __init__(self) -> None:
        self.stats = EngineStats()
        self.before = dict.fromkeys(_RESTARTED, 0)
        self.busy = 0.0
        self.lost: dict[str, int] = {}
        self.up = False
        self.given_up = False
        self.step_tokens = Histogram(catalog.STEP_TOKENS.buckets)
        self.batch_size = Histogram(catalog.BATCH_SIZE.buckets)
        self.step_seconds = Histogram(catalog.STEP_SECONDS.buckets)

    def retire(self) -> None:
        """The next stats come from a new process: keep its predecessor's counts and nothing else."""
        for name in _RESTARTED:
            self.before[name] += getattr(self.stats, name)
        self.stats = EngineStats()

    def total(self, name: str) -> int:
        return self.before[name] + int(getattr(self.stats, name))


class EngineMetrics(Collector):
    """What engines say about themselves, one row a replica."""

    def __init__(self, model: str, replicas: int) -> None:
        self._model = model
        self._engines = {replica: _Engine() for replica in range(replicas)}
        self._reasons = BoundedLabel(_MAX_REASONS)

    def step(self, replica: int, stats: EngineStats) -> None:
        """An engine took a step, or says that it is idle: then `stats.step` is the one before."""
        engine = self._engine(replica)
        if stats.step < engine.stats.step:
            engine.retire()
        if stats.step != engine.stats.step:
            engine.step_tokens.observe(stats.step_tokens)
            engine.batch_size.observe(stats.step_sequences)
            engine.step_seconds.observe(stats.step_seconds)
            engine.busy += stats.step_seconds
        engine.stats = stats
        engine.up, engine.given_up = True, False

    def lost(self, replica: int, reason: str, *, given_up: bool) -> None:
        engine = self._engine(replica)
        engine.retire()
        engine.up, engine.given_up = False, given_up
        label = self._reasons(reason)
        engine.lost[label] = engine.lost.get(label, 0) + 1

    def collect(self) -> Iterator[Family]:
        """What prometheus_client calls to read everything."""
        for metric, name in _GAUGES.items():
            yield numbers(metric, self._model, self._each(name))
        rows = [((str(replica),), engine) for replica, engine in self._engines.items()]
        yield numbers(catalog.ENGINE_UP, self._model, [(labels, engine.up) for labels, engine in rows])
        yield numbers(catalog.ENGINE_GIVEN_UP, self._model, [(labels, engine.given_up) for labels, engine in rows])
        for metric, name in _TOTALS.items():
            yield numbers(metric, self._model, [(labels, engine.total(name)) for labels, engine in rows])
        yield numbers(catalog.BUSY_SECONDS, self._model, [(labels, engine.busy) for labels, engine in rows])
        yield numbers(catalog.PREEMPTIONS, self._model, self._preemptions())
        yield numbers(catalog.LOST, self._model, self._losses())
        yield from self._blocks()
        yield histograms(catalog.STEP_TOKENS, self._model, [(labels, engine.step_tokens) for labels, engine in rows])
        yield histograms(catalog.BATCH_SIZE, self._model, [(labels, engine.batch_size) for labels, engine in rows])
        yield histograms(catalog.STEP_SECONDS, self._model, [(labels, engine.step_seconds) for labels, engine in rows])

    def _engine(self, replica: int) -> _Engine:
        engine = self._engines.get(replica)
        if engine is None:
            engine = self._engines[replica] = _Engine()
        return engine

    def _each(self, name: str) -> Iterable[tuple[Labels, float]]:
        return [((str(replica),), getattr(engine.stats, name)) for replica, engine in self._engines.items()]

    def _preemptions(self) -> Iterable[tuple[Labels, float]]:
        return [
            ((str(replica), mode), engine.total(name))
            for replica, engine in self._engines.items()
            for mode, name in _PREEMPTIONS.items()
        ]

    def _losses(self) -> Iterable[tuple[Labels, float]]:
        return [
            ((str(replica), reason), count)
            for replica, engine in self._engines.items()
            for reason, count in engine.lost.items()
        ]

    def _blocks(self) -> Iterator[Family]:
        rows = [(str(replica), engine.stats) for replica, engine in self._engines.items()]
        yield numbers(catalog.KV_USAGE, self._model, [((name,), _kv_usage(stats)) for name, stats in rows])
        yield numbers(catalog.KV_BLOCKS, self._model, _by_state(rows, _block_states))
        yield numbers(catalog.HOST_USAGE, self._model, [((name,), _host_usage(stats)) for name, stats in rows])
        yield numbers(catalog.HOST_BLOCKS, self._model, _by_state(rows, _host_block_states))
        layouts = [
            (name, stats.block_size, stats.num_blocks, stats.host_blocks) for name, stats in rows if stats.num_blocks
        ]
        yield numbers(catalog.CACHE_CONFIG, self._model, [(tuple(map(str, layout)), 1) for layout in layouts])


def _kv_usage(stats: EngineStats) -> float:
    return stats.used_blocks / stats.num_blocks if stats.num_blocks else 0.0


def _host_usage(stats: EngineStats) -> float:
    return stats.used_host_blocks / stats.host_blocks if stats.host_blocks else 0.0


def _block_states(stats: EngineStats) -> dict[str, int]:
    free = stats.num_blocks - stats.used_blocks - stats.cached_blocks
    return {"free": free, "used": stats.used_blocks, "cached": stats.cached_blocks}


def _host_block_states(stats: EngineStats) -> dict[str, int]:
    return {"free": stats.host_blocks - stats.used_host_blocks, "used": stats.used_host_blocks}


def _by_state(
    rows: Iterable[tuple[str, EngineStats]], states: Callable[[EngineStats], dict[str, int]]
) -> Iterable[tuple[Labels, float]]:
    return [((name, state), count) for name, stats in rows for state, count in states(stats).items()]
