"""Layouts of a model over many devices: tensor parallel ranks, pipeline stages, whole experts and replicas; which of
them serves the most in time.

Each layout is judged twice. A bound follows from the costs of a step alone, with steady traffic and no queue. Then one
replica is simulated with requests at random moments, ever nearer to the rate at which goals are just met; replicas have
an even share of the requests each, so one stands for all. A layout whose bound is below what another one reached in its
simulation is not simulated.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts, ModelFacts
from quire.config.kv_layout import kv_tokens
from quire.config.resolve import resolve
from quire.core.errors import ConfigError
from quire.simulation.cost import CostModel, ModelWork, StepWork
from quire.simulation.generate import RandomRequests
from quire.simulation.goals import LatencyGoals
from quire.simulation.metrics import Metrics
from quire.simulation.replica import Replica, ReplicaSetup
from quire.simulation.workload_config import WorkloadConfig

ATTAINED = 0.95
"""Of the requests, those that must meet the goals for a rate to count."""
_REACH = 1.1
"""Times the bound: the largest rate that is tried."""
_HALVINGS = 5
_SECONDS = 60.0
"""Of arrivals, within the bounds on requests."""
_FEWEST, _MOST = 300, 1500


@dataclass(frozen=True, slots=True)
class Bound:
    """What the costs of a step allow one replica."""

    batch: int
    """Answers at once."""
    step: float
    """Seconds from a token of an answer to the next, on average over steps with and without a prompt: of a pipeline, a
    step of every stage."""
    rate: float
    """Requests a second."""


@dataclass(frozen=True, slots=True)
class Layout:
    """So many replicas, each over so many devices."""

    tensor_parallel_size: int
    replicas: int
    link: str
    """Between the devices that share a layer; empty where there is one."""
    pipeline_parallel_size: int = 1
    expert_parallel: bool = False
    """Whether ranks have whole experts."""
    attention_ranks: int = 1
    """Ranks that attend each to sequences of their own, and share experts alone."""
    num_tokens: int = 0
    """Of KV in one replica."""
    bound: Bound | None = None
    goodput: float = 0.0
    """Requests a second of all replicas, simulated; 0 where that was not worth it."""
    ttft_p99: float = 0.0
    """Seconds, at that rate."""
    tpot: float = 0.0
    """Seconds a token, on average over all, at that rate."""
    collectives: float = 0.0
    """Share of a step at the bound that all-reduces take."""
    problem: str = ""
    """Why it serves nothing in time; empty where it does, or was not simulated."""

    @property
    def devices_per_replica(self) -> int:
        return self.tensor_parallel_size * self.pipeline_parallel_size * self.attention_ranks

    @property
    def schedulers(self) -> int:
        """Of all replicas: each has one, or one for each attention rank."""
        return self.attention_ranks * self.replicas

    @property
    def num_devices(self) -> int:
        return self.devices_per_replica * self.replicas

    def __str__(self) -> str:
        if self.attention_ranks > 1:
            return f"DP+EP {self.attention_ranks} x {self.replicas}"
        ranks = f"{'TP+EP' if self.expert_parallel else 'TP'} {self.tensor_parallel_size}"
        stages = f" x PP {self.pipeline_parallel_size}" if self.pipeline_parallel_size > 1 else ""
        return f"{ranks}{stages} x {self.replicas}"


def find_layouts(
    asked: EngineConfig,
    model: ModelFacts,
    device: DeviceFacts,
    num_devices: int,
    workload: WorkloadConfig,
    goals: LatencyGoals,
) -> Iterator[Layout]:
    """Every layout that uses all of the devices, judged; the caller chooses."""
    judged = [_Judged(asked, model, device, layout, workload, goals) for layout in _layouts(model, device, num_devices)]
    best = 0.0
    for each in sorted(judged, key=lambda each: each.bound, reverse=True):
        if _REACH * each.bound > best:
            each.simulate(workload)
            best = max(best, each.layout.goodput)
    for each in judged:
        yield each.layout


def _layouts(model: ModelFacts, device: DeviceFacts, num_devices: int) -> Iterator[Layout]:
    """With whole experts too, where there are some and ranks to spread them over, which may attend each alone."""
    for ranks in _divisors(num_devices):
        link = "" if ranks == 1 else device.link_of(ranks).name
        for stages in _divisors(num_devices // ranks):
            if stages <= len(model.spec.layers):
                layout = Layout(ranks, num_devices // (ranks * stages), link, stages)
                yield layout
                if model.spec.has_experts and ranks > 1:
                    yield replace(layout, expert_parallel=True)
        if model.spec.has_experts and ranks > 1:
            yield Layout(1, num_devices // ranks, link, expert_parallel=True, attention_ranks=ranks)


def _divisors(number: int) -> list[int]:
    return [size for size in range(1, number + 1) if number % size == 0]


def best_of(layouts: list[Layout]) -> Layout | None:
    """The most goodput; among equals the fewest devices a replica, for its loss costs least, and no whole experts."""
    useful = [layout for layout in layouts if layout.goodput > 0]
    return max(
        useful,
        key=lambda layout: (layout.goodput, -layout.devices_per_replica, not layout.expert_parallel),
        default=None,
    )


def find_bound(cost: CostModel, setup: ReplicaSetup, prompt: float, answer: float, goals: LatencyGoals) -> Bound | None:
    """The largest steady batch that meets the goals; None where even one answer at a time does not.

    Of a batch of B answers B / answer end in a step, and as many prompts take their place.
    """
    limits, stages = setup.resolved.limits, setup.resolved.num_stages
    fitting = int(kv_tokens(setup.resolved.kv) / (prompt + answer))
    found = None
    for batch in range(1, min(limits.max_num_seqs, fitting) + 1):
        step, first = _step_seconds(cost, batch, prompt, answer, stages)
        if 1e3 * step > goals.tpot or 1e3 * (step / 2 + first) > goals.ttft:
            break
        found = Bound(batch, step, batch / (answer * step))
    return found


def _step_seconds(cost: CostModel, batch: int, prompt: float, answer: float, stages: int) -> tuple[float, float]:
    """From token to token on average, and to the first token of a prompt.

    Answers take turns in a pipeline: each is in one of so many steps as there are stages, and its token is there when
    all of them have passed it on.
    """
    turn = -(-batch // stages)
    context = round(turn * (prompt + answer / 2))
    decode = cost.seconds(StepWork(num_tokens=turn, context=context, pairs=context)) + _hop(cost, turn, stages)
    prompts = turn / answer
    several = max(1.0, prompts)
    pairs = context + round(several * prompt * prompt / 2)
    work = StepWork(num_tokens=turn + round(several * prompt), context=context, pairs=pairs)
    with_prompt = cost.seconds(work) + _hop(cost, work.num_tokens, stages)
    share = min(1.0, prompts)
    return stages * ((1 - share) * decode + share * with_prompt), stages * with_prompt


def _hop(cost: CostModel, num_tokens: int, stages: int) -> float:
    return cost.hop_seconds(num_tokens) if stages > 1 else 0.0


class _Judged:
    """A layout and what is known of it so far."""

    def __init__(
        self,
        asked: EngineConfig,
        model: ModelFacts,
        device: DeviceFacts,
        layout: Layout,
        workload: WorkloadConfig,
        goals: LatencyGoals,
    ) -> None:
        self.layout = layout
        self.bound = 0.0
        """Requests a second of all replicas; 0 where not even one request meets the goals."""
        self._setup: ReplicaSetup | None = None
        parallel = replace(
            asked.parallel,
            tensor_parallel_size=layout.tensor_parallel_size,
            pipeline_parallel_size=layout.pipeline_parallel_size,
            enable_expert_parallel=layout.expert_parallel,
            data_parallel_size=layout.attention_ranks,
        )
        try:
            resolved = resolve(replace(asked, parallel=parallel), model, device)
        except ConfigError as error:
            self.layout = replace(layout, problem=str(error))
            return
        size = layout.tensor_parallel_size
        self._setup = ReplicaSetup(resolved, ModelWork.of(model), device, size, goals=goals)
        cost = CostModel(self._setup.model, device, resolved, size)
        layout = replace(layout, num_tokens=kv_tokens(resolved.kv) * layout.attention_ranks)
        prompt, answer = (lengths.mean for lengths in workload.lengths())
        bound = find_bound(cost, self._setup, prompt, answer, goals)
        if bound is None:
            self.layout = replace(layout, problem=_why_late(cost, prompt, answer, goals, resolved.num_stages))
            return
        self.bound = bound.rate * layout.schedulers
        stages = resolved.num_stages
        tokens = -(-bound.batch // stages) + round(prompt * bound.batch / answer / stages)
        collectives = stages * cost.collective_seconds(tokens) / bound.step
        self.layout = replace(layout, bound=bound, collectives=collectives)

    def simulate(self, workload: WorkloadConfig) -> None:
        bound = self.layout.bound
        if self._setup is not None and bound is not None:
            self.layout = _simulated(self._setup, self.layout, bound, workload)


def _why_late(cost: CostModel, prompt: float, answer: float, goals: LatencyGoals, stages: int) -> str:
    step, first = _step_seconds(cost, 1, prompt, answer, stages)
    if 1e3 * step > goals.tpot:
        return f"one answer alone takes {1e3 * step:.1f} ms a token, more than --tpot {goals.tpot:g}"
    wait = 1e3 * (step / 2 + first)
    return f"a prompt of {prompt:,.0f} tokens alone takes {wait:,.0f} ms, more than --ttft {goals.ttft:g}"


def _simulated(setup: ReplicaSetup, layout: Layout, bound: Bound, workload: WorkloadConfig) -> Layout:
    """With the largest rate at which enough requests meet the goals, between none and a little above the bound."""
    low, high, best = 0.0, _REACH * bound.rate, None
    for _ in range(_HALVINGS):
        rate = (low + high) / 2
        metrics = _run(setup, workload, rate)
        if metrics.good >= ATTAINED * sum(tenant.arrived for tenant in metrics.tenants.values()):
            low, best = rate, metrics
        else:
            high = rate
    if best is None:
        return replace(layout, problem="requests at random moments miss the goals at every rate that was tried")
    (tenant,) = best.tenants.values()
    return replace(
        layout,
        goodput=low * layout.schedulers,
        ttft_p99=tenant.ttft.percentiles().p99,
        tpot=tenant.tpot.percentiles().mean,
    )


def _run(setup: ReplicaSetup, workload: WorkloadConfig, rate: float) -> Metrics:
    number = int(min(_MOST, max(_FEWEST, rate * _SECONDS)))
    asked = replace(workload, request_rate=rate, num_requests=number)
    return Replica(setup).run(RandomRequests(asked, setup.resolved.limits.max_model_len))
