"""The ring of samples behind the console's charts: bounded, in order, and the same however many fronts there are."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from jsonschema import Draft202012Validator

from quire.core.stats import EngineStats
from quire.observe.metrics import Metrics
from quire.protocol.schemas.status import HISTORY
from quire.server import history
from quire.server.history import SPAN, EngineLoad, History, Sample, columns_of, load_of, sample_of
from tests.server.live import LiveServer, running_server


def sample(moment: float, running: int = 0) -> Sample:
    return sample_of(moment, Metrics().snapshot(), EngineLoad(running=running, num_blocks=8, used_blocks=2))


def test_the_oldest_make_room() -> None:
    moments = iter(range(SPAN + 50))
    kept = History(sample, clock=lambda: float(next(moments)))
    for _ in range(SPAN + 50):
        kept.sample()
    assert [each.time for each in kept.samples] == list(range(50, SPAN + 50))


def test_samples_are_taken_until_it_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "PERIOD", 0.001)

    async def scenario() -> list[Sample]:
        kept = History(sample)
        task = asyncio.create_task(kept.keep())
        while len(kept.samples) < 5:
            await asyncio.sleep(0.001)
        task.cancel()
        return kept.samples

    times = [each.time for each in asyncio.run(scenario())]
    assert times == sorted(set(times))


def test_a_sample_has_what_charts_show() -> None:
    metrics = Metrics(clock=lambda: 100.5)
    metrics.first_token(0, 0.25, prompt_tokens=40)
    metrics.tokens(0, 0.02, 1)
    load = load_of([EngineStats(running=2, waiting=1, num_blocks=10, used_blocks=4), EngineStats(num_blocks=10)])
    found = sample_of(100.5, metrics.snapshot(), load)
    assert (found.running, found.waiting, found.kv_used, found.kv_cached) == (2, 1, 0.2, 0.0)
    assert found.prompt_tokens_per_second == 40
    assert found.generation_tokens_per_second == 2
    assert found.ttft_p50 == pytest.approx(0.25, rel=0.12)
    assert found.itl_p95 == pytest.approx(0.02, rel=0.12)


def test_a_sample_has_drafts_and_adapters() -> None:
    metrics = Metrics(clock=lambda: 100.5)
    before = EngineStats(step=1, adapters=2, waiting_adapters=1)
    told = {"total_drafts": 4, "total_draft_tokens": 16, "total_accepted_tokens": 12, "total_adapter_hits": 7}
    after = msgspec.structs.replace(before, step=2, total_adapter_loads=2, **told)
    metrics.engine(0, before)
    metrics.engine(0, after)
    found = sample_of(100.5, metrics.snapshot(), load_of([after, EngineStats(adapters=3)]))
    assert (found.drafts_per_second, found.draft_tokens_per_second, found.accepted_tokens_per_second) == (4, 16, 12)
    assert (found.accepted_share, found.mean_accepted_length) == (0.75, 3.0)
    assert (found.adapters_on_device, found.adapters_waiting) == (5, 1)
    assert (found.adapter_hits_per_second, found.adapter_loads_per_second) == (7, 2)


def test_columns_are_short_and_tell_ages() -> None:
    shown = columns_of([sample(10.0, 3), sample(11.123456, 4)], now=12.0)
    Draft202012Validator(HISTORY).validate(shown)
    assert shown["age_seconds"] == [2.0, 0.88]
    assert shown["running"] == [3, 4]
    assert shown["kv_used"] == [0.25, 0.25]
    assert shown["ttft_p50"] == [None, None]
    assert set(shown) == set(HISTORY["properties"])


def test_before_an_engine_has_spoken_its_share_is_unknown() -> None:
    assert sample_of(0.0, Metrics().snapshot(), EngineLoad()).kv_used is None


def check_history(server: LiveServer) -> dict[str, list[float | None]]:
    """Ask until a second has passed in which something was generated."""
    with server.client() as client:
        client.post("/v1/completions", json={"prompt": "One, two,", "max_tokens": 8, "ignore_eos": True})
        while True:
            found = client.get("/stats/history").json()
            if any(found["generation_tokens_per_second"]):
                break
    Draft202012Validator(HISTORY).validate(found)
    assert len({len(column) for column in found.values()}) == 1
    assert found["age_seconds"] == sorted(found["age_seconds"], reverse=True)
    assert found["kv_used"][-1] is not None
    assert any(value for value in found["ttft_p50"])
    return found


def test_a_server_keeps_it_without_being_looked_at(live_server: LiveServer) -> None:
    check_history(live_server)


def test_the_hub_keeps_it_for_all_fronts(tmp_path: Path) -> None:
    with running_server(tmp_path, "--api-server-count", "2") as server:
        check_history(server)
        answers = [server.get("/stats/history") for _ in range(8)]  # of whichever front
        peaks = {max(answer["generation_tokens_per_second"]) for answer in answers}
        assert len(peaks) == 1
        assert min(len(answer["running"]) for answer in answers) >= len(answers[0]["running"])
