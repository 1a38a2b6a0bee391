"""An experiment: one workload on one cluster, under one policy or several. What `quire simulate` runs."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts, ModelFacts
from quire.config.resolve import resolve
from quire.config.scheduler import Policy
from quire.config.server import RoutingStrategy
from quire.core.errors import CheckpointError, ConfigError
from quire.core.nearest import did_you_mean
from quire.models.loading.header import read_model_facts
from quire.simulation.cluster import OnProgress, share_out, simulate
from quire.simulation.cost import CostModel, ModelWork
from quire.simulation.generate import RandomRequests
from quire.simulation.metrics import total_of
from quire.simulation.replica import ReplicaSetup
from quire.simulation.report import Report
from quire.simulation.router import Router
from quire.simulation.shapes import SHAPES
from quire.simulation.summary import describe_setting, summarise
from quire.simulation.trace import TraceReader
from quire.simulation.workload import SimulatedRequest
from quire.simulation.workload_config import USUAL_REQUESTS, WorkloadConfig

TYPICAL_CONTEXT = 500
"""Tokens: ShareGPT's mean prompt and answer. Only the router's guess of how fast a replica drains rests on it."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """What is simulated."""

    asked: EngineConfig
    workload: WorkloadConfig
    device: DeviceFacts
    policies: tuple[Policy, ...]
    replicas: int = 1
    routing: RoutingStrategy = "prefix"
    async_steps: bool = True
    processes: int | None = None

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise ConfigError(f"--replicas is {self.replicas}, but it must be 1 or more.")
        if self.processes is not None and self.processes < 1:
            raise ConfigError(f"--processes is {self.processes}, but it must be 1 or more; leave it out for all cores.")


def find_model(name: str, revision: str | None) -> ModelFacts:
    """A shape known by name, or the facts of a checkpoint."""
    if name in SHAPES:
        if revision is not None:
            raise ConfigError(f"--revision is {revision!r}, but {name} is a built-in shape; leave --revision out.")
        return SHAPES[name]
    try:
        return read_model_facts(name, revision)
    except CheckpointError as error:
        known = f"built-in shapes are {', '.join(SHAPES)}.{did_you_mean(name, SHAPES)}"
        raise CheckpointError(f"{str(error).rstrip('.')}; {known}") from error


def run_experiment(experiment: Experiment, watch: Callable[[int], OnProgress]) -> list[Report]:
    """Simulate it: a report for each policy. `watch` takes how many requests will come, and returns its counter."""
    asked, workload = experiment.asked, experiment.workload
    model = find_model(asked.model.model, asked.model.revision)
    setups = [_setup(experiment, model, policy) for policy in experiment.policies]
    requests, words = _requests(workload, setups[0].resolved.limits.max_model_len)
    shares = share_out(requests, _router(experiment, setups[0]), _simulated(experiment))
    progress = watch(sum(map(len, shares)) * len(setups))
    reports = []
    for setup, parts in zip(setups, simulate(setups, shares, experiment.processes, progress), strict=True):
        seed = workload.seed if workload.trace is None else None
        setting = describe_setting(setup, experiment.replicas, experiment.routing, words, seed)
        reports.append(summarise(setting, total_of(parts), workload.weights()))
    return reports


def _setup(experiment: Experiment, model: ModelFacts, policy: Policy) -> ReplicaSetup:
    asked = experiment.asked
    if asked.scheduler.speculative_config is not None:
        raise ConfigError("--speculative-config has no effect here: the modelled device drafts nothing; leave it out.")
    if policy != asked.scheduler.scheduling_policy:
        # settings of one policy are not for another
        scheduler = replace(asked.scheduler, scheduling_policy=policy, round_robin_slice=None, priority_ageing=None)
        asked = replace(asked, scheduler=scheduler)
    return ReplicaSetup(
        resolved=resolve(asked, model, experiment.device),
        model=ModelWork.of(model),
        device=experiment.device,
        num_devices=asked.parallel.tensor_parallel_size,
        async_steps=experiment.async_steps and experiment.workload.beam_width == 1,
        tenant_weights=experiment.workload.weights(),
    )


def _router(experiment: Experiment, setup: ReplicaSetup) -> Router:
    cost = CostModel(setup.model, setup.device, setup.resolved, setup.num_devices)
    rate = cost.tokens_per_second(setup.resolved.limits.max_num_seqs, TYPICAL_CONTEXT)
    return Router(experiment.routing, _simulated(experiment), rate)


def _simulated(experiment: Experiment) -> int:
    """Schedulers, each with KV of its own: of every replica one, or one for each of its attention ranks."""
    return experiment.replicas * experiment.asked.parallel.attention_ranks


def _requests(workload: WorkloadConfig, max_model_len: int) -> tuple[Iterable[SimulatedRequest], str]:
    """The requests, and what they are in words."""
    if workload.trace is not None:
        reader = TraceReader(workload.trace, workload.trace_time, workload.trace_block, workload.num_requests)
        requests = reader.read()
        return requests, f"{len(requests):,} requests of {workload.trace} (timestamps in {reader.unit})"
    rate = "all at once" if workload.request_rate is None else f"{workload.request_rate:g} a second"
    parts = [
        f"{workload.num_requests or USUAL_REQUESTS:,} random requests, {rate}",
        f"prompts {workload.input_tokens}, answers {workload.output_tokens}",
    ]
    if workload.prefix_groups:
        parts.append(f"{workload.prefix_groups} shared prefixes of {workload.prefix_tokens}")
    if workload.long_prompt_every:
        parts.append(f"one prompt of {workload.long_prompt_tokens} every {workload.long_prompt_every:g} s")
    if workload.high_priority:
        parts.append(f"{workload.high_priority:.0%} with high priority")
    if workload.n > 1:
        parts.append(f"n = {workload.n}")
    if workload.beam_width > 1:
        parts.append(f"beams of {workload.beam_width}")
    return RandomRequests(workload, max_model_len), "; ".join(parts)
