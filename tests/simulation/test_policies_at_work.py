"""What policies promise, seen over whole simulations: nobody starves, shares are fair, streams keep their pace."""

import pytest

from quire.config.devices import DEVICES
from quire.config.engine import EngineConfig
from quire.config.resolve import resolve
from quire.simulation.cost import ModelWork
from quire.simulation.generate import RandomRequests
from quire.simulation.metrics import Metrics
from quire.simulation.replica import Replica, ReplicaSetup
from quire.simulation.shapes import SHAPES
from quire.simulation.summary import describe_setting, summarise
from quire.simulation.workload import SimulatedRequest
from quire.simulation.workload_config import WorkloadConfig
from tests.simulation.setups import make_setup, run


def crowd(count: int, tenant: str, first: int, *, every: float, priority: int = 0) -> list[SimulatedRequest]:
    return [
        SimulatedRequest(first + number, number * every, 20, 20, tenant=tenant, priority=priority)
        for number in range(count)
    ]


def in_order(*groups: list[SimulatedRequest]) -> list[SimulatedRequest]:
    return sorted((request for group in groups for request in group), key=lambda request: request.arrival)


def longest_wait(metrics: Metrics, tenant: str) -> float:
    return metrics.tenants[tenant].queue.most


def test_priority_lets_low_priorities_run_though_high_ones_keep_coming() -> None:
    # more work with high priority than the device can do, for the whole of 4 seconds
    high = crowd(600, "high", 1000, every=0.0066, priority=-1)
    low = crowd(10, "low", 0, every=0.001)
    metrics = run(make_setup(policy="priority", max_num_seqs=2), in_order(high, low))
    last_arrival = 600 * 0.0066
    assert metrics.end > last_arrival + 1, "the device was overloaded"
    # ageing is 1 s a level: only the quarter of the high ones that arrive in that second stand before the low ones
    assert 1.0 < longest_wait(metrics, "low") < 0.3 * metrics.end
    assert longest_wait(metrics, "low") < longest_wait(metrics, "high")


def test_fair_serves_a_small_tenant_at_once_beside_a_flood() -> None:
    flood, small = crowd(300, "flood", 1000, every=0.0), crowd(10, "small", 0, every=0.1)
    fair = run(make_setup(policy="fair", max_num_seqs=4), in_order(flood, small))
    first_come = run(make_setup(policy="fcfs", max_num_seqs=4), in_order(flood, small))
    assert longest_wait(first_come, "small") > 3
    assert longest_wait(fair, "small") < 0.5
    assert fair.tenants["flood"].ended == 300


@pytest.mark.parametrize(("weights", "ratio"), [({}, 1.0), ({"a": 3.0}, 3.0)])
def test_fair_divides_service_by_weight(weights: dict[str, float], ratio: float) -> None:
    requests = in_order(crowd(100, "a", 0, every=0.0), crowd(300, "b", 1000, every=0.0))
    setup = make_setup(policy="fair", max_num_seqs=8, tenant_weights=weights)
    report = summarise(describe_setting(setup, 1, "none", "", None), run(setup, requests), weights)
    rates = {name: tenant.contended_rate or 0.0 for name, tenant in report.tenants.items()}
    assert rates["a"] / rates["b"] == pytest.approx(ratio, rel=0.25)
    assert (report.fairness.jain or 0.0) > 0.95


def h200(target: float | None) -> Metrics:
    """Two streams a second on an H200, and a prompt of 32k tokens every two seconds."""
    model, device = SHAPES["llama-8b"], DEVICES["h200"]
    asked = EngineConfig.from_flat(model="llama-8b", max_model_len=40960, target_itl_ms=target)
    resolved = resolve(asked, model, device)
    workload = WorkloadConfig(
        num_requests=100, request_rate=8.0, input_tokens="100:200", output_tokens="100:300", long_prompt_every=2.0
    )
    setup = ReplicaSetup(resolved, ModelWork.of(model), device)
    return Replica(setup).run(RandomRequests(workload, resolved.limits.max_model_len))


def test_a_target_keeps_the_pace_while_long_prompts_arrive() -> None:
    free, paced = h200(None), h200(20.0)
    assert free.itl.percentile(0.99) > 0.1
    assert paced.itl.percentile(0.99) <= 0.020
    assert paced.reasons == free.reasons
