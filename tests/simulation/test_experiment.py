"""Experiments: one workload under several policies, on shapes or checkpoints."""

from pathlib import Path
from typing import Any

import pytest

from quire.config.devices import DEVICES
from quire.config.engine import EngineConfig
from quire.core.errors import CheckpointError, ConfigError
from quire.simulation.cluster import OnProgress
from quire.simulation.experiment import Experiment, find_model, run_experiment
from quire.simulation.report import Report
from quire.simulation.shapes import SHAPES
from quire.simulation.workload_config import WorkloadConfig


def nobody(total: int) -> OnProgress:
    return lambda _: None


def experiment(
    workload: WorkloadConfig | None = None, settings: dict[str, Any] | None = None, **fields: Any
) -> Experiment:
    asked = EngineConfig.from_flat(**({"model": "qwen3-0.6b", "max_model_len": 2048} | (settings or {})))
    usual: dict[str, Any] = {"policies": ("fcfs",), "processes": 1}
    return Experiment(asked, workload or WorkloadConfig(num_requests=20), DEVICES["a10g"], **(usual | fields))


def run(*args: Any, **fields: Any) -> list[Report]:
    return run_experiment(experiment(*args, **fields), nobody)


def test_policies_get_the_same_requests() -> None:
    reports = run(policies=("fcfs", "sjf", "fair"), replicas=2)
    assert [report.setting.policy for report in reports] == ["fcfs", "sjf", "fair"]
    assert len({(report.throughput.input_tokens, report.throughput.output_tokens) for report in reports}) == 1
    assert reports[0].setting.replicas == 2
    assert reports[0].setting.model == "qwen3-0.6b"


def test_settings_of_one_policy_stay_with_it() -> None:
    settings = {"scheduling_policy": "round-robin", "round_robin_slice": 4}
    reports = run(None, settings, policies=("round-robin", "fcfs"))
    assert [report.setting.policy for report in reports] == ["round-robin", "fcfs"]


def test_beams_are_never_planned_ahead() -> None:
    [report] = run(WorkloadConfig(num_requests=3, beam_width=3))
    assert not report.setting.async_steps
    assert report.dropped_beams > 0
    assert run(WorkloadConfig(num_requests=3))[0].setting.async_steps


def test_a_trace_is_replayed(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival_time,input_length,output_length,tenant\n5,10,7,a\n6.5,20,9,b\n", encoding="utf-8")
    [report] = run(WorkloadConfig(trace=path))
    assert report.throughput.output_tokens == 16
    assert report.throughput.seconds > 1.5
    assert set(report.tenants) == {"a", "b"}
    assert "2 requests of" in report.setting.workload
    assert report.setting.seed is None


def test_words_say_what_was_asked() -> None:
    workload = WorkloadConfig(
        num_requests=5,
        request_rate=50.0,
        prefix_groups=2,
        prefix_tokens=64,
        high_priority=0.5,
        n=2,
        long_prompt_every=0.05,
        long_prompt_tokens=1000,
    )
    [report] = run(workload)
    words = report.setting.workload
    for part in (
        "5 random requests, 50 a second",
        "2 shared prefixes of 64",
        "50% with high",
        "n = 2",
        "of 1000",
    ):
        assert part in words


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"replicas": 0}, "--replicas is 0"), ({"processes": 0}, "--processes is 0")],
)
def test_impossible_clusters(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        experiment(**fields)


def test_models_by_name_and_by_path() -> None:
    assert find_model("llama-8b", None) is SHAPES["llama-8b"]
    with pytest.raises(ConfigError, match="--revision"):
        find_model("llama-8b", "main")
    with pytest.raises(CheckpointError, match=r"built-in shapes are llama-8b.* Did you mean 'llama-8b'"):
        find_model("llama-9b", None)


def test_shapes_are_consistent() -> None:
    for name, model in SHAPES.items():
        assert model.name == name
        assert model.total_weight_bytes == 2 * model.num_parameters
    counts = {"llama-8b": 8_030_261_248, "llama-70b": 70_553_706_496, "qwen3-0.6b": 596_049_920}
    counts["qwen3-30b-a3b"] = 30_532_122_624
    counts["deepseek-v2-lite"] = 15_706_484_224
    assert {name: model.num_parameters for name, model in SHAPES.items()} == counts
    positions = {"llama-8b": 131_072, "llama-70b": 131_072, "qwen3-0.6b": 40_960, "qwen3-30b-a3b": 40_960}
    positions["deepseek-v2-lite"] = 163_840
    assert {name: model.spec.max_position for name, model in SHAPES.items()} == positions
    assert {model.spec.max_position_source for model in SHAPES.values()} == {"its shape"}
