"""Ranks that attend each to sequences of their own, simulated: what a step costs one of them, and that layouts have
them."""

from dataclasses import replace

import pytest

from quire.config.devices import DEVICES
from quire.config.engine import EngineConfig
from quire.config.kv_layout import kv_tokens
from quire.config.resolve import resolve
from quire.core.errors import ConfigError
from quire.simulation.cost import CostModel, ModelWork, StepWork
from quire.simulation.day.config import ScenarioConfig
from quire.simulation.day.run import Day
from quire.simulation.experiment import Experiment, run_experiment
from quire.simulation.layouts import Layout, _layouts
from quire.simulation.shapes import SHAPES
from quire.simulation.workload_config import WorkloadConfig

LITE, H200 = SHAPES["deepseek-v2-lite"], DEVICES["h200"]
SPREAD = {"data_parallel_size": 4, "enable_expert_parallel": True, "max_model_len": 8192}


def cost(**settings: object) -> CostModel:
    asked = EngineConfig.from_flat(model="deepseek-v2-lite", **{**SPREAD, **settings})
    resolved = resolve(asked, LITE, replace(H200, step_curve=()))
    ranks = asked.parallel.tensor_parallel_size
    return CostModel(ModelWork.of(LITE), replace(H200, step_curve=()), resolved, ranks)


def test_a_rank_reads_its_own_context_alone() -> None:
    """Tensor parallel ranks all read the latents of all sequences."""
    alone, cut = cost(), cost(data_parallel_size=1, tensor_parallel_size=4)
    context = 20_000
    own = StepWork(num_tokens=16, context=16 * context, pairs=16 * context)
    all_of_them = StepWork(num_tokens=64, context=64 * context, pairs=64 * context)
    assert alone.seconds(own) < 0.5 * cut.seconds(all_of_them)
    assert 0 < alone.collective_seconds(16) < cut.collective_seconds(64)


def test_experts_are_read_for_tokens_of_all_ranks() -> None:
    """A token of each of four ranks chooses as many experts as four of one, of which each rank has a quarter."""
    experts = ModelWork.of(LITE).experts
    assert experts is not None
    assert experts.num_layers == LITE.spec.num_layers - 1
    unread = experts.unread_share(4, 4, whole=True)
    assert cost()._of_experts(1)[0] == unread * experts.share_if_alone(4) < unread
    assert experts.share_if_alone(1) == 1


def test_an_experiment_has_kv_of_every_rank() -> None:
    asked = EngineConfig.from_flat(model="deepseek-v2-lite", **SPREAD)
    workload = WorkloadConfig(num_requests=40, request_rate=200.0)
    [report] = run_experiment(Experiment(asked, workload, H200, ("fcfs",), processes=1), lambda _: lambda _: None)
    assert report.requests.ended == 40
    assert (report.setting.num_devices, report.setting.replicas, report.setting.attention_ranks) == (4, 1, 4)


def test_layouts_have_them() -> None:
    found = [layout for layout in _layouts(LITE, H200, 8) if layout.attention_ranks > 1]
    assert list(map(str, found)) == ["DP+EP 2 x 4", "DP+EP 4 x 2", "DP+EP 8 x 1"]
    assert all(layout.num_devices == 8 and layout.schedulers == 8 for layout in found)
    assert not any(layout.attention_ranks > 1 for layout in _layouts(SHAPES["llama-8b"], H200, 8))
    assert Layout(2, 3, "NVLink 4").schedulers == 3


def test_they_hold_several_times_the_latents() -> None:
    asked = EngineConfig.from_flat(model="deepseek-v2-lite", **SPREAD)
    cut = EngineConfig.from_flat(
        model="deepseek-v2-lite", **{**SPREAD, "data_parallel_size": 1, "tensor_parallel_size": 4}
    )
    tokens = [kv_tokens(resolve(each, LITE, H200).kv) for each in (asked, cut)]
    assert 4 * tokens[0] > 3.5 * tokens[1]


def test_scenarios_do_not_know_them() -> None:
    asked = EngineConfig.from_flat(model="deepseek-v2-lite", **SPREAD)
    with pytest.raises(ConfigError, match="--data-parallel-size is not modelled with --scenario"):
        Day(asked, ScenarioConfig(scenario="fastchat-day"), WorkloadConfig(), H200, 1)
