"""Metrics of engines, from the stats they send after a step. Keeps the last stats; sums are made when someone asks."""

from collections.abc import Iterator

from quire.core.stats import EngineStats, LayerBalance
from quire.observe import catalog
from quire.observe.engine_rates import EngineRates
from quire.observe.figures import Labels, Samples, bounded
from quire.observe.histogram import Histogram

_GAUGES = {
    catalog.RUNNING: "running",
    catalog.WAITING: "waiting",
    catalog.HELD: "held",
    catalog.KV_WASTE: "kv_waste",
    catalog.DEVICE_MEMORY: "device_memory_bytes",
    catalog.DEVICE_MEMORY_TOTAL: "device_memory_total",
    catalog.ENGINE_MEMORY: "memory_bytes",
    catalog.ADAPTERS_WAITING: "waiting_adapters",
    catalog.DISK_FOREIGN: "foreign_disk_files",
    catalog.ASLEEP: "sleep_level",
    catalog.WAKE_SECONDS: "wake_seconds",
    catalog.KV_FETCHING: "fetching",
}
_TOTALS = {
    catalog.STEPS: "step",
    catalog.PREFIX_QUERIES: "total_prefix_tokens",
    catalog.PREFIX_HITS: "total_prefix_hits",
    catalog.MEDIA_ENCODED: "total_media_encoded",
    catalog.MEDIA_FOUND: "total_media_found",
    catalog.ENCODER_SECONDS: "total_encoder_seconds",
    catalog.STEPS_FAILED: "total_steps_failed",
    catalog.OUT_OF_MEMORY: "total_out_of_memory",
    catalog.ADAPTER_HITS: "total_adapter_hits",
    catalog.ADAPTER_LOADS: "total_adapter_loads",
    catalog.ADAPTER_EVICTIONS: "total_adapter_evictions",
    catalog.DISK_HITS: "total_disk_hits",
    catalog.DISK_READS: "total_disk_reads",
    catalog.DISK_WRITES: "total_disk_writes",
    catalog.DISK_CORRUPT: "total_disk_corrupt",
    catalog.WAKES: "total_wakes",
    catalog.EXPERT_CHOICES: "total_expert_choices",
    catalog.EXPERT_COPIES: "total_expert_copies",
    catalog.EXPERT_HITS: "total_expert_hits",
    catalog.EXPERT_MISSES: "total_expert_misses",
    catalog.EXPERT_EVICTIONS: "total_expert_evictions",
}
_PREEMPTIONS = {"recompute": "total_preemptions_recompute", "swap": "total_preemptions_swap"}
_EVICTIONS = {"device": "total_evictions", "host": "total_host_evictions", "disk": "total_disk_evictions"}
_DRAFTS = {
    catalog.DRAFTS: "total_drafts",
    catalog.DRAFT_TOKENS: "total_draft_tokens",
    catalog.ACCEPTED_TOKENS: "total_accepted_tokens",
}
"""Told where tokens are drafted."""
_MOVED_KV = {catalog.KV_MOVED_BLOCKS: "blocks", catalog.KV_MOVED_BYTES: "bytes", catalog.KV_MOVED_SECONDS: "seconds"}
_DIRECTIONS = ("sent", "received")
_NOT_MOVED = ("refused", "corrupt", "declined", "given_up")
_KV_TOTALS = (
    *(f"total_kv_{direction}_{unit}" for direction in _DIRECTIONS for unit in _MOVED_KV.values()),
    *(f"total_kv_{reason}" for reason in _NOT_MOVED),
)
_RESTARTED = (
    *_TOTALS.values(),
    *_PREEMPTIONS.values(),
    *_EVICTIONS.values(),
    *_DRAFTS.values(),
    *_KV_TOTALS,
)
"""Counts that an engine's replacement starts again from 0."""
_HISTOGRAMS = {
    catalog.STEP_TOKENS: "step_tokens",
    catalog.BATCH_SIZE: "batch_size",
    catalog.STEP_SECONDS: "step_seconds",
}


class _Engine:
    """One replica: the engine it has now, and what those before it left."""

    __slots__ = (
        *("batch_size", "before", "busy", "draft_method", "experts", "given_up", "lost", "stats", "step_seconds"),
        *("step_tokens", "up"),
    )

    def __init__(self) -> None:
        self.stats = EngineStats()
        self.before: dict[str, float] = dict.fromkeys(_RESTARTED, 0)
        self.busy = 0.0
        self.draft_method = ""
        self.experts: list[LayerBalance] = []
        self.lost: dict[Labels, float] = {}
        self.up = False
        self.given_up = False
        self.step_tokens = Histogram.over(catalog.STEP_TOKENS.buckets)
        self.batch_size = Histogram.over(catalog.BATCH_SIZE.buckets)
        self.step_seconds = Histogram.over(catalog.STEP_SECONDS.buckets)

    def retire(self) -> None:
        """The next stats come from a new process: keep its predecessor's counts and nothing else."""
        for name in _RESTARTED:
            self.before[name] += getattr(self.stats, name)
        self.stats = EngineStats()
        self.experts = []

    def total(self, name: str) -> float:
        now: float = getattr(self.stats, name)
        return self.before[name] + now


class EngineMetrics:
    """What engines say about themselves, one row a replica."""

    def __init__(self, replicas: int, rates: EngineRates) -> None:
        self._rates = rates
        self._engines = {replica: _Engine() for replica in range(replicas)}

    def step(self, replica: int, stats: EngineStats) -> None:
        """An engine took a step, or says that it is idle: then `stats.step` is the one before."""
        engine = self._engine(replica)
        if stats.step < engine.stats.step:
            engine.retire()
        if stats.step != engine.stats.step:
            engine.step_tokens.observe(catalog.STEP_TOKENS.buckets, stats.step_tokens)
            engine.batch_size.observe(catalog.BATCH_SIZE.buckets, stats.step_sequences)
            engine.step_seconds.observe(catalog.STEP_SECONDS.buckets, stats.step_seconds)
            engine.busy += stats.step_seconds
        if engine.up:  # whoever begins to listen to an engine that has long run takes what it has counted for granted
            self._rates.heard(engine.stats, stats)
        engine.stats = stats
        engine.experts = stats.expert_balance or engine.experts
        engine.draft_method = stats.draft_method or engine.draft_method
        engine.up, engine.given_up = True, False

    def lost(self, replica: int, reason: str, *, given_up: bool) -> None:
        engine = self._engine(replica)
        engine.retire()
        engine.up, engine.given_up = False, given_up
        labels = bounded(catalog.LOST, engine.lost, (str(replica), reason))
        engine.lost[labels] = engine.lost.get(labels, 0) + 1

    def samples(self) -> Samples:
        """As it is now."""
        samples = Samples(
            {metric.name: {} for metric in catalog.ENGINE_METRICS if not metric.buckets},
            {metric.name: {} for metric in _HISTOGRAMS},
        )
        for replica, engine in self._engines.items():
            for metric, labels, number in _numbers(str(replica), engine):
                samples.numbers[metric.name][labels] = number
            for metric, name in _HISTOGRAMS.items():
                samples.histograms[metric.name][str(replica),] = getattr(engine, name).copy()
        return samples

    def _engine(self, replica: int) -> _Engine:
        engine = self._engines.get(replica)
        if engine is None:
            engine = self._engines[replica] = _Engine()
        return engine


def _numbers(replica: str, engine: _Engine) -> Iterator[tuple[catalog.Metric, Labels, float]]:
    stats = engine.stats
    yield from ((metric, (replica,), getattr(stats, name)) for metric, name in _GAUGES.items())
    yield from ((metric, (replica,), engine.total(name)) for metric, name in _TOTALS.items())
    yield catalog.ENGINE_UP, (replica,), int(engine.up)
    yield catalog.ENGINE_GIVEN_UP, (replica,), int(engine.given_up)
    yield catalog.BUSY_SECONDS, (replica,), engine.busy
    yield from ((catalog.PREEMPTIONS, (replica, mode), engine.total(name)) for mode, name in _PREEMPTIONS.items())
    yield from ((catalog.EVICTIONS, (replica, tier), engine.total(name)) for tier, name in _EVICTIONS.items())
    if engine.draft_method:
        labels = (replica, engine.draft_method)
        yield from ((metric, labels, engine.total(name)) for metric, name in _DRAFTS.items())
    yield from _moved_kv(replica, engine)
    yield from ((catalog.LOST, labels, count) for labels, count in engine.lost.items())
    yield catalog.ADAPTERS, (replica, "device"), stats.adapters
    yield catalog.ADAPTERS, (replica, "host"), stats.host_adapters
    for each in engine.experts:
        yield catalog.EXPERT_IMBALANCE, (replica, str(each.layer)), each.imbalance
        yield catalog.EXPERT_HOT_SHARE, (replica, str(each.layer)), each.hot_share
    if stats.rank_balance is not None:
        yield catalog.EXPERT_RANK_IMBALANCE, (replica, "with"), stats.rank_balance.imbalance
        yield catalog.EXPERT_RANK_IMBALANCE, (replica, "without"), stats.rank_balance.without_copies
    yield from _blocks(replica, stats)


def _moved_kv(replica: str, engine: _Engine) -> Iterator[tuple[catalog.Metric, Labels, float]]:
    for metric, unit in _MOVED_KV.items():
        for direction in _DIRECTIONS:
            yield metric, (replica, direction), engine.total(f"total_kv_{direction}_{unit}")
    yield from ((catalog.KV_NOT_MOVED, (replica, reason), engine.total(f"total_kv_{reason}")) for reason in _NOT_MOVED)


def _blocks(replica: str, stats: EngineStats) -> Iterator[tuple[catalog.Metric, Labels, float]]:
    used, cached, host_used = stats.used_blocks, stats.cached_blocks, stats.used_host_blocks
    states = {"free": stats.num_blocks - used - cached, "used": used, "cached": cached}
    host_states = {"free": stats.host_blocks - host_used, "used": host_used}
    yield catalog.KV_USAGE, (replica,), used / stats.num_blocks if stats.num_blocks else 0.0
    yield from ((catalog.KV_BLOCKS, (replica, state), count) for state, count in states.items())
    yield catalog.HOST_USAGE, (replica,), host_used / stats.host_blocks if stats.host_blocks else 0.0
    yield from ((catalog.HOST_BLOCKS, (replica, state), count) for state, count in host_states.items())
    disk_states = {"free": stats.disk_blocks - stats.used_disk_blocks, "used": stats.used_disk_blocks}
    yield from ((catalog.DISK_BLOCKS, (replica, state), count) for state, count in disk_states.items())
    yield catalog.DISK_BYTES, (replica,), stats.used_disk_blocks * stats.disk_block_bytes
    if stats.num_blocks:
        layout = (stats.block_size, stats.num_blocks, stats.host_blocks)
        yield catalog.CACHE_CONFIG, (replica, *map(str, layout)), 1
