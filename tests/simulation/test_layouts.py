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
    assert [str(layout) for layout in small] == ["TP 1 x 2", "TP 1 x PP 2 x 1", "TP 2 x 1"]
    best = best_of(small)
    assert best is not None
    assert best.devices_per_replica == 1
    large = judged("llama-70b", "h200", 2)
    assert "does not fit" in large[0].problem
    assert best_of(large) == large[2]
    assert large[2].link == "NVLink 4"
    assert 0 < large[2].collectives < 0.5


def test_experts_are_spread_whole_too() -> None:
    found = judged("qwen3-30b-a3b", "h100", 2)
    assert [str(layout) for layout in found] == [
        "TP 1 x 2",
        "TP 1 x PP 2 x 1",
        "TP 2 x 1",
        "TP+EP 2 x 1",
        "DP+EP 2 x 1",
    ]
    bounds = {str(layout): layout.bound.rate for layout in found if layout.bound is not None}
    assert 0 < bounds["TP+EP 2 x 1"] <= bounds["TP 2 x 1"], "one rank is the one that the others wait for"


@pytest.mark.parametrize(
    "layout", [Layout(1, 2, ""), Layout(2, 1, "NVLink 4"), Layout(1, 1, "", 2), Layout(2, 1, "NVLink 4", 2)], ids=str
)
def test_what_is_simulated_stays_near_the_bound(layout: Layout) -> None:
    asked = EngineConfig.from_flat(model="llama-8b", max_model_len=4096)
    workload = WorkloadConfig(input_tokens="256", output_tokens="64")
    each = module._Judged(asked, SHAPES["llama-8b"], find_device("h100"), layout, workload, GOALS)
    each.simulate(workload)
    assert 0.8 * each.bound <= each.layout.goodput <= 1.1 * each.bound
    assert each.layout.tpot <= 30e-3


def test_what_cannot_win_is_not_simulated() -> None:
    behind = [layout for layout in judged("qwen3-0.6b", "h100", 2) if layout.goodput == 0]
    assert behind
    for layout in behind:
        assert layout.bound is not None
        assert not layout.problem


def test_goals_that_no_layout_meets_are_told_with_numbers() -> None:
    layouts = judged("llama-70b", "h200", 2, LatencyGoals(ttft=500, tpot=2))
    assert best_of(layouts) is None
    assert "ms a token, more than --tpot 2" in layouts[2].problem
    layouts = judged("llama-70b", "h200", 2, LatencyGoals(ttft=3, tpot=100))
    assert "more than --ttft 3" in layouts[2].problem


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
