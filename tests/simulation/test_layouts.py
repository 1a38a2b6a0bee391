"""Layouts of a model over devices, judged by costs and by simulation."""

from dataclasses import replace

import pytest

from quire.config.devices import find_device
from quire.config.engine import EngineConfig
from quire.core.errors import ConfigError
from quire.simulation import layouts as module
from quire.simulation.cost import CostModel
from quire.simulation.generate import RandomRequests
from quire.simulation.goals import LatencyGoals
from quire.simulation.layouts import Bound, Layout, best_of, find_bound, find_layouts
from quire.simulation.replica import Replica
from quire.simulation.shapes import SHAPES
from quire.simulation.workload_config import WorkloadConfig
from tests.simulation.setups import DEVICE, MODEL, make_setup

GOALS = LatencyGoals(ttft=500, tpot=30)


@pytest.fixture(autouse=True)
def few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FEWEST", 60)
    monkeypatch.setattr(module, "_MOST", 60)


def judged(name: str, gpu: str, number: int, goals: LatencyGoals = GOALS) -> list[Layout]:
    asked = EngineConfig.from_flat(model=name, max_model_len=4096)
    workload = WorkloadConfig(input_tokens="256", output_tokens="64")
    return list(find_layouts(asked, SHAPES[name], find_device(gpu), number, workload, goals))


def test_a_small_model_is_replicated_and_a_large_one_is_cut() -> None:
    small = judged("qwen3-0.6b", "h100", 2)
    assert [(layout.tensor_parallel_size, layout.replicas) for layout in small] == [(1, 2), (2, 1)]
    best = best_of(small)
    assert best is not None
    assert best.tensor_parallel_size == 1
    large = judged("llama-70b", "h200", 2)
    assert "does not fit" in large[0].problem
    assert best_of(large) == large[1]
    assert large[1].link == "NVLink 4"
    assert 0 < large[1].collectives < 0.5


def test_what_is_simulated_stays_near_the_bound() -> None:
    for layout in judged("qwen3-0.6b", "h100", 2):
        assert layout.bound is not None
        bound = layout.bound.rate * layout.replicas
        assert 0.8 * bound <= layout.goodput <= 1.1 * bound
        assert layout.tpot <= 30e-3


def test_goals_that_no_layout_meets_are_told_with_numbers() -> None:
    layouts = judged("llama-70b", "h200", 2, LatencyGoals(ttft=500, tpot=2))
    assert best_of(layouts) is None
    assert "ms a token, more than --tpot 2" in layouts[1].problem
    layouts = judged("llama-70b", "h200", 2, LatencyGoals(ttft=3, tpot=100))
    assert "more than --ttft 3" in layouts[1].problem


def test_equals_are_told_apart_by_what_a_loss_costs() -> None:
    one, two = Layout(1, 2, "", goodput=5.0), Layout(2, 1, "NVLink 4", goodput=5.0)
    assert best_of([two, one]) == one
    assert best_of([Layout(1, 1, "", problem="no")]) is None


def test_the_bound_of_full_batches_is_what_a_simulation_of_them_makes() -> None:
    """All requests at once, of equal lengths, with room for a batch of eight."""
    setup = make_setup(num_blocks=2048, max_num_batched_tokens=512, model=replace(MODEL, num_layers=2, hidden_size=64))
    cost = CostModel(setup.model, DEVICE, setup.resolved)
    bound = find_bound(cost, setup, 32, 128, LatencyGoals(ttft=1e6, tpot=1e6))
    assert bound is not None
    assert bound.batch == 8
    workload = WorkloadConfig(num_requests=200, input_tokens="32", output_tokens="128")
    metrics = Replica(setup).run(RandomRequests(workload, 256))
    assert 200 / metrics.end == pytest.approx(bound.rate, rel=0.1)


def test_a_bound_stops_where_goals_or_memory_end() -> None:
    setup = make_setup(num_blocks=256)  # 1,024 tokens
    cost = CostModel(setup.model, DEVICE, setup.resolved)
    assert find_bound(cost, setup, 100, 156, LatencyGoals(1e6, 1e6)).batch == 4  # type: ignore[union-attr]
    assert find_bound(cost, setup, 100, 156, LatencyGoals(1e6, 1e-3)) is None
    assert isinstance(find_bound(cost, setup, 100, 156, LatencyGoals(1e6, 1e6)), Bound)


def test_goals_are_met_by_the_mean_of_an_answer() -> None:
    goals = LatencyGoals(ttft=100, tpot=10)
    assert goals.are_met(0.1, 0.09, 10)
    assert not goals.are_met(0.11, 0.01, 10)
    assert not goals.are_met(0.1, 0.1, 10)
    assert goals.are_met(0.1, 0.0, 1)
    with pytest.raises(ConfigError, match="--ttft is 0"):
        LatencyGoals(0, 1)
