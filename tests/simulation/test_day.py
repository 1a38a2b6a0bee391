"""Simulated days: leaps agree with steps, requests end once, tiers and roles do what they should."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quire.config.devices import find_device
from quire.config.engine import EngineConfig
from quire.config.resolve import resolve
from quire.core.errors import ConfigError
from quire.simulation.cluster import OnProgress
from quire.simulation.cost import ModelWork
from quire.simulation.day.cluster import Cluster
from quire.simulation.day.config import ScenarioConfig
from quire.simulation.day.conversation import Conversation, Stretch, Turn
from quire.simulation.day.instance import Instance
from quire.simulation.day.placing import ByRouter, chunk_names
from quire.simulation.day.prefixes import Found, Prefixes
from quire.simulation.day.record import Record
from quire.simulation.day.recorded import read_conversations
from quire.simulation.day.report import DayReport
from quire.simulation.day.run import Day, make_engine, run_day
from quire.simulation.day.traffic import traced_conversations
from quire.simulation.experiment import find_model
from quire.simulation.generate import RandomRequests
from quire.simulation.histogram import Histogram
from quire.simulation.replica import Replica, ReplicaSetup
from quire.simulation.workload_config import WorkloadConfig

A10G = find_device("a10g")


def nobody(total: int) -> OnProgress:
    return lambda _: None


def asked(**settings: Any) -> EngineConfig:
    return EngineConfig.from_flat(**({"model": "llama-8b", "max_model_len": 4096} | settings))


def day(num_requests: int = 300, replicas: int = 2, cluster: dict[str, Any] | None = None, **settings: Any) -> Day:
    scenario = ScenarioConfig(scenario="fastchat-day", **(cluster or {}))
    return Day(asked(**settings), scenario, WorkloadConfig(num_requests=num_requests), A10G, replicas)


def run(*args: Any, **settings: Any) -> DayReport:
    return run_day(day(*args, **settings), nobody)


@pytest.mark.parametrize("async_steps", [True, False])
def test_leaps_agree_with_steps_of_the_real_scheduler(async_steps: bool) -> None:
    settings, model = asked(), find_model("llama-8b", None)
    resolved = resolve(settings, model, A10G)
    requests = list(RandomRequests(WorkloadConfig(num_requests=120, request_rate=1.0, prefix_groups=3), 4096))
    setup = ReplicaSetup(resolved, ModelWork.of(model), A10G, async_steps=async_steps)
    steps = Replica(setup).run(requests)
    (tenant,) = steps.tenants.values()
    leaps = Record()
    engine = make_engine(replace(day(replicas=1), async_steps=async_steps), resolved, setup.model)
    instances = [Instance(0, engine, leaps)]
    Cluster(engine, instances, ByRouter("prefix", instances), leaps).run(traced_conversations(requests))
    assert leaps.output_tokens == steps.output_tokens
    assert leaps.end == pytest.approx(steps.end, rel=0.01)
    assert leaps.steps == pytest.approx(steps.steps, rel=0.03)
    assert leaps.leaps < leaps.steps / 4
    assert leaps.tokens.computed == pytest.approx(steps.computed_tokens, rel=0.05)
    assert mean(leaps.ttft) == pytest.approx(mean(tenant.ttft), rel=0.1)
    assert mean(leaps.itl) == pytest.approx(mean(steps.itl), rel=0.03)
    assert mean(leaps.total) == pytest.approx(mean(tenant.total), rel=0.03)


def mean(histogram: Histogram) -> float:
    return histogram.total / histogram.count


def test_every_request_ends_once_and_no_token_is_lost() -> None:
    report = run()
    assert report.arrived == report.ended > 250
    assert report.output_tokens == report.itl.count + report.ttft.count
    assert report.ttft.count == report.ended
    assert report.tokens.device > 0
    assert sum(point.requests_per_second for point in report.points) * 900 == pytest.approx(report.arrived)


def test_the_same_seed_gives_the_same_day_whatever_the_routing() -> None:
    first, second = run(), run_day(replace(day(), routing="round-robin"), nobody)
    assert (first.arrived, first.output_tokens) == (second.arrived, second.output_tokens)
    assert first.tokens.computed < second.tokens.computed, "conversations stay where their prefix is"


def test_roles_hand_answers_over() -> None:
    report = run(cluster={"prefill_replicas": 1, "transfer_bandwidth": 10.0}, replicas=3)
    assert report.ended == report.arrived
    assert 0 < report.handed_over <= report.arrived
    assert report.transferred > 0
    assert report.output_tokens == report.itl.count + report.ttft.count


def test_a_slow_link_delays_the_second_token() -> None:
    fast = run(cluster={"prefill_replicas": 1, "transfer_bandwidth": 50.0})
    slow = run(cluster={"prefill_replicas": 1, "transfer_bandwidth": 0.05})
    assert slow.itl.most > fast.itl.most
    assert slow.ttft.p50 == pytest.approx(fast.ttft.p50, rel=0.2)


def test_peers_without_roles_pull_prefixes() -> None:
    report = run(4000, 2, {"transfer_bandwidth": 50.0})
    assert report.tokens.peer > 0
    assert report.handed_over == 0


def test_tiers_below_save_computing() -> None:
    without, host, disk = (
        run(1000, 1, None, num_gpu_blocks_override=260, **settings)
        for settings in (
            {"swap_space": 0.0},
            {"swap_space": 4.0},
            {"swap_space": 0.0, "kv_disk_path": "/nowhere", "kv_disk_gb": 100.0},
        )
    )
    assert without.tokens.host == without.tokens.disk == 0
    assert host.tokens.host > 0 < disk.tokens.disk
    assert max(host.tokens.computed, disk.tokens.computed) < without.tokens.computed


def test_room_that_runs_out_preempts_the_latest() -> None:
    report = run(3000, 1, None, num_gpu_blocks_override=300)
    assert report.preempted > 0
    assert report.ended + report.refused == report.arrived
    assert report.output_tokens == report.itl.count + report.ttft.count


def test_prefixes_go_down_the_tiers_and_come_back() -> None:
    prefixes = Prefixes(device=100, host=100, disk=100)
    for name in range(4):
        prefixes.give(Stretch(name, 60))
    assert [prefixes.find([Stretch(name, 60)]) for name in range(4)] == [
        Found(), Found(disk=60), Found(host=60), Found(device=60),
    ]  # fmt: skip
    assert prefixes.find([Stretch(3, 60), Stretch(2, 80)]) == Found(device=60, host=60)
    assert prefixes.find([Stretch(9, 1), Stretch(3, 60)]) == Found(), "behind a gap there is nothing"
    assert prefixes.fit(0) == 4 * 60, "all have gone to the host at some time"
    assert prefixes.find([Stretch(3, 60)]) == Found(host=60)


def test_without_lower_tiers_what_is_evicted_is_gone() -> None:
    prefixes = Prefixes(device=100, host=0, disk=0)
    prefixes.give(Stretch(1, 60))
    prefixes.give(Stretch(2, 60))
    assert prefixes.find([Stretch(1, 60)]) == Found()


def test_chunks_are_named_by_all_up_to_their_end() -> None:
    one = chunk_names([Stretch(1, 100), Stretch(50, 200)])
    other = chunk_names([Stretch(1, 100), Stretch(51, 200)])
    assert len(one) == len(other) == 300 // 64
    assert [a == b for a, b in zip(one, other, strict=True)] == [True, False, False, False]
    assert chunk_names([Stretch(1, 100), Stretch(50, 300)])[:4] == one, "a conversation that grows keeps its names"


def test_a_conversation_that_outgrows_the_context_is_refused() -> None:
    engine = make_engine(day(replicas=1), *_resolved())
    record = Record()
    instances = [Instance(0, engine, record)]
    turns = [Turn(2000, 1500), Turn(100, 2000), Turn(2000, 10), Turn(1, 1)]

    def conversations() -> Iterator[Conversation]:
        yield Conversation(1 << 31, 0.0, iter(turns))

    Cluster(engine, instances, ByRouter("prefix", instances), record).run(conversations())
    assert (record.arrived, record.ended, record.cut_short, record.refused) == (3, 2, 1, 1)


def _resolved() -> tuple[Any, ModelWork]:
    model = find_model("llama-8b", None)
    return resolve(asked(), model, A10G), ModelWork.of(model)


SHAREGPT = '[{"id": "a", "conversations": [{"from": "human", "value": "12345678"}, {"from": "gpt", "value": "1234"}]}]'
LMSYS = (
    '{"conversation_id": "b", "model": "m", "conversation": [{"role": "user", "content": "12345678"}, '
    '{"role": "assistant", "content": "1234"}], "turn": 1}\n'
)


@pytest.mark.parametrize("text", [SHAREGPT, LMSYS])
def test_published_conversations_are_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "conversations.json"
    path.write_text(text, encoding="utf-8")
    [[turn]] = read_conversations(path, seed=0)
    assert (turn.asked, turn.answered) == (2, 1)
    report = run(20, cluster={"conversations": path})
    assert report.output_tokens == report.arrived == 20


@pytest.mark.parametrize(
    ("text", "said"), [("[]", "no conversation"), ("{", "not JSON"), ('{"conversation": []}', "no conversation")]
)
def test_other_files_are_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "conversations.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=said):
        read_conversations(path, seed=0)


def test_a_trace_takes_the_place_of_random_traffic(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,100,7\n"
        "2024-05-10 00:00:02.5+00:00,200,9\n",
        encoding="utf-8",
    )
    scenario = ScenarioConfig(scenario="fastchat-day")
    report = run_day(Day(asked(), scenario, WorkloadConfig(trace=path), A10G, 2), nobody)
    assert (report.arrived, report.output_tokens) == (2, 16)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"scheduling_policy": "sjf"}, "--scheduling-policy"),
        ({"target_itl_ms": 50.0}, "--target-itl-ms"),
        ({"enable_prefix_caching": False}, "--enable-prefix-caching"),
    ],
)
def test_what_is_not_modelled_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        day(**settings)


def test_roles_leave_someone_to_answer() -> None:
    with pytest.raises(ConfigError, match="--prefill-replicas is 2 of 2"):
        day(cluster={"prefill_replicas": 2})


def test_scenario_settings_need_a_scenario() -> None:
    with pytest.raises(ConfigError, match="--prefill-replicas has no effect without --scenario"):
        ScenarioConfig(prefill_replicas=1)


def test_random_workloads_are_the_scenarios_own() -> None:
    with pytest.raises(ConfigError, match="--request-rate has no effect with --scenario"):
        Day(asked(), ScenarioConfig(scenario="fastchat-day"), WorkloadConfig(request_rate=1.0), A10G, 1)
