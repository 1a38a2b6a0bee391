"""Layouts of a model over many devices: which tensor parallel size, in how many replicas, serves the most in time.

Each layout is judged twice. A bound follows from the costs of a step alone, with steady traffic and no queue. Then one
replica is simulated with requests at random moments, ever nearer to the rate at which goals are just met; replicas have
an even share of the requests each, so one stands for all.
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
    """Seconds, on average over steps with and without a prompt."""
    rate: float
    """Requests a second."""


@dataclass(frozen=True, slots=True)
class Layout:
    """So many replicas, each over so many devices."""

    tensor_parallel_size: int
    replicas: int
    link: str
    """Between the devices of a replica; empty where it has one."""
    num_tokens: int = 0
    """Of KV in one replica."""
    bound: Bound | None = None
    goodput: float = 0.0
    """Requests a second of all replicas, simulated."""
    ttft_p99: float = 0.0
    """Seconds, at that rate."""
    tpot: float = 0.0
    """Seconds a token, on average over all, at that rate."""
    collectives: float = 0.0
    """Share of a step at the bound that all-reduces take."""
    problem: str = ""
    """Why it serves nothing in time; empty where it does."""

    @property
    def num_devices(self) -> int:
        return self.tensor_parallel_size * self.replicas


def find_layouts(
    asked: EngineConfig,
    model: ModelFacts,
    device: DeviceFacts,
    num_devices: int,
    workload: WorkloadConfig,
    goals: LatencyGoals,
) -> Iterator[Layout]:
    """Every layout that uses all of the devices, judged; the caller chooses."""
    for size in range(1, num_devices + 1):
        if num_devices % size == 0:
            yield _judge(asked, model, device, Layout(size, num_devices // size, _link(device, size)), workload, goals)


def best_of(layouts: list[Layout]) -> Layout | None:
    """The most goodput; among equals the fewest devices a replica, for its loss costs least."""
    useful = [layout for layout in layouts if layout.goodput > 0]
    return max(useful, key=lambda layout: (layout.goodput, -layout.tensor_parallel_size), default=None)


def find_bound(cost: CostModel, setup: ReplicaSetup, prompt: float, answer: float, goals: LatencyGoals) -> Bound | None:
    """The largest steady batch that meets the goals; None where even one answer at a time does not.

    Of a batch of B answers B / answer end in a step, and as many prompts take their place.
    """
    limits = setup.resolved.limits
    fitting = int(kv_tokens(setup.resolved.kv) / (prompt + answer))
    found = None
    for batch in range(1, min(limits.max_num_seqs, fitting) + 1):
        step, first = _step_seconds(cost, batch, prompt, answer)
        if 1e3 * step > goals.tpot or 1e3 * (step / 2 + first) > goals.ttft:
            break
        found = Bound(batch, step, batch / (answer * step))
    return found


def _step_seconds(cost: CostModel, batch: int, prompt: float, answer: float) -> tuple[float, float]:
    """On average, and with a prompt in it."""
    context = round(batch * (prompt + answer / 2))
    decode = cost.seconds(StepWork(num_tokens=batch, context=context, pairs=context))
    prompts = batch / answer
    several = max(1.0, prompts)
    pairs = context + round(several * prompt * prompt / 2)
    work = StepWork(num_tokens=batch + round(several * prompt), context=context, pairs=pairs)
    with_prompt = cost.seconds(work)
    share = min(1.0, prompts)
    return (1 - share) * decode + share * with_prompt, with_prompt


def _judge(
    asked: EngineConfig,
    model: ModelFacts,
    device: DeviceFacts,
    layout: Layout,
    workload: WorkloadConfig,
    goals: LatencyGoals,
) -> Layout:
    asked = replace(asked, parallel=replace(asked.parallel, tensor_parallel_size=layout.tensor_parallel_size))
    try:
        resolved = resolve(asked, model, device)
    except ConfigError as error:
        return replace(layout, problem=str(error))
    size = layout.tensor_parallel_size
    setup = ReplicaSetup(resolved, ModelWork.of(model), device, size, goals=goals)
    cost = CostModel(setup.model, device, resolved, size)
    layout = replace(layout, num_tokens=kv_tokens(resolved.kv))
    prompt, answer = (lengths.mean for lengths in workload.lengths())
    bound = find_bound(cost, setup, prompt, answer, goals)
    if bound is None:
        return replace(layout, problem=_why_late(cost, prompt, answer, goals))
    tokens = bound.batch + round(prompt * bound.batch / answer)
    layout = replace(layout, bound=bound, collectives=cost.collective_seconds(tokens) / bound.step)
    return _simulated(setup, layout, bound, workload)


def _why_late(cost: CostModel, prompt: float, answer: float, goals: LatencyGoals) -> str:
    step, first = _step_seconds(cost, 1, prompt, answer)
    if 1e3 * step > goals.tpot:
        return f"one answer alone takes {1e3 * step:.1f} ms a token, more than --tpot {goals.tpot:g}"
    wait = 1e3 * (step / 2 + first)
    return f"a prompt of {prompt:,.0f} tokens alone takes {wait:,.0f} ms, more than --ttft {goals.ttft:g}"


def _simulated(setup: ReplicaSetup, layout: Layout, bound: Bound, workload: WorkloadConfig) -> Layout:
    """With the largest rate at which enough requests meet the goals, between none and a little above the bound."""
    low, high, best = 0.0, 1.1 * bound.rate, None
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
        goodput=low * layout.replicas,
        ttft_p99=tenant.ttft.percentiles().p99,
        tpot=tenant.tpot.percentiles().mean,
    )


def _run(setup: ReplicaSetup, workload: WorkloadConfig, rate: float) -> Metrics:
    number = int(min(_MOST, max(_FEWEST, rate * _SECONDS)))
    asked = replace(workload, request_rate=rate, num_requests=number)
    return Replica(setup).run(RandomRequests(asked, setup.resolved.limits.max_model_len))


def _link(device: DeviceFacts, size: int) -> str:
    return "" if size == 1 else device.link_of(size).name
