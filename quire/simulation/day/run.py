"""A scenario from its settings to its report. What `quire simulate --scenario` runs."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

from quire.config.bounds import flag
from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts
from quire.config.resolve import resolve
from quire.config.resolved import KVLayout, Resolved
from quire.config.server import EngineRole, RoutingStrategy
from quire.core.errors import ConfigError
from quire.kvcache.host import LEAST_SHARE_FOR_PREFIXES
from quire.simulation.cluster import OnProgress
from quire.simulation.cost import CostModel, ModelWork
from quire.simulation.day.cluster import Cluster
from quire.simulation.day.config import ScenarioConfig
from quire.simulation.day.conversation import Conversation
from quire.simulation.day.instance import Engine, Instance
from quire.simulation.day.placing import ByRoles, ByRouter
from quire.simulation.day.record import Record
from quire.simulation.day.recorded import read_conversations
from quire.simulation.day.report import DayReport, report_day
from quire.simulation.day.scenarios import SCENARIOS, Scenario
from quire.simulation.day.traffic import random_conversations, recorded_conversations, traced_conversations
from quire.simulation.experiment import find_model
from quire.simulation.trace import TraceReader
from quire.simulation.workload_config import WorkloadConfig

_OF_SCENARIOS = ("num_requests", "seed", "trace", "trace_time", "trace_block")


@dataclass(frozen=True, slots=True)
class Day:
    """What is simulated."""

    asked: EngineConfig
    settings: ScenarioConfig
    workload: WorkloadConfig
    device: DeviceFacts
    replicas: int
    routing: RoutingStrategy = "prefix"
    async_steps: bool = True

    def __post_init__(self) -> None:
        usual = WorkloadConfig()
        for field in fields(usual):
            if field.name not in _OF_SCENARIOS and getattr(self.workload, field.name) != getattr(usual, field.name):
                raise ConfigError(f"{flag(field.name)} has no effect with --scenario, which gives it; leave it out.")
        if self.workload.trace is not None and self.settings.conversations is not None:
            raise ConfigError("--trace and --conversations both say what is asked; give one of them.")
        if not 0 <= self.settings.prefill_replicas < self.replicas:
            raise ConfigError(
                f"--prefill-replicas is {self.settings.prefill_replicas} of {self.replicas} replicas, but at least one "
                "must be left to answer; raise --replicas."
            )
        self._check_scheduler()

    def _check_scheduler(self) -> None:
        scheduler = self.asked.scheduler
        unlike = [
            name
            for name, differs in (
                ("scheduling_policy", scheduler.scheduling_policy != "fcfs"),
                ("target_itl_ms", scheduler.target_itl_ms is not None),
                ("speculative_config", scheduler.speculative_config is not None),
                ("enable_prefix_caching", not self.asked.cache.enable_prefix_caching),
                ("pipeline_parallel_size", self.asked.parallel.pipeline_parallel_size > 1),
                ("data_parallel_size", self.asked.parallel.attention_ranks > 1),
            )
            if differs
        ]
        if unlike:
            raise ConfigError(
                f"{flag(unlike[0])} is not modelled with --scenario, which leaps over steps of the usual policy; leave "
                "it out, or simulate step by step without --scenario."
            )

    @property
    def scenario(self) -> Scenario:
        assert self.settings.scenario is not None
        return SCENARIOS[self.settings.scenario]


def run_day(day: Day, watch: Callable[[int], OnProgress]) -> DayReport:
    """Simulate it. `watch` takes how many requests will come, about, and returns their counter."""
    began = time.perf_counter()
    model = find_model(day.asked.model.model, day.asked.model.revision)
    resolved = resolve(day.asked, model, day.device)
    engine = make_engine(day, resolved, ModelWork.of(model))
    record = Record()
    instances = [Instance(number, engine, record, _role(day, number)) for number in range(day.replicas)]
    exchanges = bool(day.settings.prefill_replicas) or day.settings.transfer_bandwidth is not None
    placing = ByRoles(day.routing, instances) if exchanges else ByRouter(day.routing, instances)
    conversations, count, source = _conversations(day)
    Cluster(engine, instances, placing, record).run(conversations, watch(count))
    return report_day(
        record,
        scenario=str(day.settings.scenario),
        words=f"{source}; {_cluster_words(day, engine, resolved, exchanges)}",
        routing=day.routing,
        instances=day.replicas,
        prefill_instances=day.settings.prefill_replicas,
        wall=time.perf_counter() - began,
    )


def make_engine(day: Day, resolved: Resolved, model: ModelWork) -> Engine:
    """What each instance is."""
    kv, ranks = resolved.kv, day.asked.parallel.tensor_parallel_size
    link = day.settings.transfer_bandwidth
    keeps_prefixes = kv.num_cpu_blocks * LEAST_SHARE_FOR_PREFIXES >= kv.num_blocks
    disk = 0 if resolved.disk is None else resolved.disk.num_bytes // (kv.block_bytes * ranks)
    return Engine(
        cost=CostModel(model, day.device, resolved, ranks),
        limits=resolved.limits,
        block_size=kv.block_size,
        device_tokens=_tokens(kv, kv.num_blocks),
        host_tokens=_tokens(kv, kv.num_cpu_blocks) if keeps_prefixes else 0,
        disk_tokens=_tokens(kv, disk),
        token_bytes=kv.bytes_per_token * ranks,
        disk_bandwidth=day.settings.disk_bandwidth * 1e9,
        transfer_bandwidth=day.device.link_between_hosts.bandwidth if link is None else link * 1e9,
        seconds_per_token=resolved.preemption_costs.seconds_per_token,
        async_steps=day.async_steps,
    )


def _tokens(kv: KVLayout, num_blocks: int) -> int:
    """That so many blocks hold: every group needs one of its own for the same tokens."""
    return num_blocks // max(1, len(kv.groups)) * kv.block_size


def _role(day: Day, number: int) -> EngineRole:
    if not day.settings.prefill_replicas:
        return "both"
    return "prefill" if number < day.settings.prefill_replicas else "decode"


def _conversations(day: Day) -> tuple[Iterator[Conversation], int, str]:
    """What is said in the day, about how many requests that is, and where it is from."""
    workload, scenario, settings = day.workload, day.scenario, day.settings
    if workload.trace is not None:
        requests = TraceReader(workload.trace, workload.trace_time, workload.trace_block, workload.num_requests).read()
        return traced_conversations(requests), len(requests), f"{len(requests):,} requests of {workload.trace}"
    count = workload.num_requests or scenario.num_requests
    if settings.conversations is not None:
        recorded = read_conversations(settings.conversations, workload.seed)
        turns = sum(map(len, recorded)) / len(recorded)
        people = max(1, round(count / turns))
        source = f"about {count:,} requests like the {len(recorded):,} conversations of {settings.conversations}"
        return recorded_conversations(recorded, scenario.habits, people, workload.seed), count, source
    people = max(1, round(count / scenario.habits.mean_turns))
    words = f"{scenario.words}, about {count:,} requests (seed {workload.seed})"
    return random_conversations(scenario.habits, people, workload.seed), count, words


def _cluster_words(day: Day, engine: Engine, resolved: Resolved, exchanges: bool) -> str:
    ranks, prefills = day.asked.parallel.tensor_parallel_size, day.settings.prefill_replicas
    devices = f"{ranks} × {day.device.name}" if ranks > 1 else day.device.name
    roles = f", {prefills} for prompts and {day.replicas - prefills} for answers" if prefills else ""
    tiers = [f"{engine.device_tokens:,} tokens of KV on the device"]
    tiers += [f"{engine.host_tokens:,} on the host"] if engine.host_tokens else []
    tiers += [f"{engine.disk_tokens:,} on disk"] if engine.disk_tokens else []
    link = f", KV between them at {engine.transfer_bandwidth / 1e9:g} GB/s" if exchanges else ""
    return (
        f"{day.asked.model.model} on {day.replicas} × {devices}{roles}{link}; each with {', '.join(tiers)} and "
        f"contexts of up to {resolved.limits.max_model_len:,}"
    )
