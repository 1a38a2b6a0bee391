"""What servers say of themselves."""

import asyncio
from typing import Any

import pytest

from quire.bench import gauges
from quire.bench.gauges import GaugePoint, GaugeWatch, read_gauges
from quire.bench.http.connection import AnswerSink, BrokenAnswer

QUIRE = """# HELP quire_num_requests_running x
# TYPE quire_num_requests_running gauge
quire_num_requests_running{engine="0",model_name="m"} 3.0
quire_num_requests_running{engine="1",model_name="m"} 4.0
quire_num_requests_waiting{engine="0",model_name="m"} 1.0
quire_kv_cache_usage_perc{engine="0",model_name="m"} 0.25
quire_kv_cache_usage_perc{engine="1",model_name="m"} 0.5
"""
VLLM = """vllm:num_requests_running{engine="0"} 2.0
vllm:num_requests_waiting{engine="0"} 0
vllm:kv_cache_usage_perc{x="y"} 0.125
"""
DRAFTS = """quire_spec_decode_num_drafts_total{engine="0",method="ngram"} 10.0
quire_spec_decode_num_drafts_total{engine="1",method="ngram"} 2.0
quire_spec_decode_num_drafts_created{engine="0",method="ngram"} 1.7e+09
quire_spec_decode_num_draft_tokens_total{engine="0",method="ngram"} 40.0
quire_spec_decode_num_accepted_tokens_total{engine="0",method="ngram"} 30.0
"""
VLLM_DRAFTS = """vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 5.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 15.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 9.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 4.0
"""
LLAMA = "llamacpp:requests_processing 1\nllamacpp:requests_deferred 5\n"


@pytest.mark.parametrize(
    ("page", "point"),
    [
        (QUIRE, GaugePoint(2.0, 7.0, 1.0, 0.5)),
        (VLLM, GaugePoint(2.0, 2.0, 0.0, 0.125)),
        (LLAMA, GaugePoint(2.0, 1.0, 5.0, None)),
        (DRAFTS, GaugePoint(2.0, None, None, None, 12, 40, 30)),
        (QUIRE + DRAFTS, GaugePoint(2.0, 7.0, 1.0, 0.5, 12, 40, 30)),
        (VLLM + VLLM_DRAFTS, GaugePoint(2.0, 2.0, 0.0, 0.125, 5, 15, 9)),
        (DRAFTS + VLLM_DRAFTS, GaugePoint(2.0, None, None, None, 12, 40, 30)),
        ("vllm:spec_decode_num_drafts_total NaN\nvllm:num_requests_running +Inf\n", None),
        ("python_info 1\n", None),
        ("<html>", None),
    ],
)
def test_pages(page: str, point: GaugePoint | None) -> None:
    assert read_gauges(page, 2.0) == point


class Server:
    """Has drafted one token more whenever somebody looks; the fourth time and later something else may happen."""

    def __init__(self, status: int = 200, later: BaseException | None = None) -> None:
        self.looks = 0
        self._status = status
        self._later = later

    async def get(self, route: str, sink: AnswerSink) -> None:
        assert route == "/metrics"
        self.looks += 1
        if self._later is not None and self.looks >= 4:
            raise self._later
        sink.begin(self._status, 0)
        sink.body(f"vllm:spec_decode_num_draft_tokens_total 1{self.looks}\n".encode(), 0)


def watched(server: Any, looks: int, every: float = 0.001) -> list[GaugePoint]:
    """Of a run that goes on until the server has been looked at so often."""

    async def run() -> list[GaugePoint]:
        watch = GaugeWatch(server, lambda: float(server.looks), every)
        await watch.before()
        watch.begin()
        while server.looks < looks:
            await asyncio.sleep(0.001)
        return await watch.end()

    return asyncio.run(run())


def test_a_run_is_looked_at_before_during_and_after() -> None:
    server = Server()
    points = watched(server, 4)
    assert [(point.time, point.drafted) for point in points[:4]] == [(0.0, 11), (1.0, 12), (2.0, 13), (3.0, 14)]
    assert points[-1].drafted == 10 + server.looks
    assert len(points) == server.looks >= 5


def test_a_run_shorter_than_the_pause_has_two_looks() -> None:
    assert [point.drafted for point in watched(Server(), 1, every=3600)] == [11, 12]


@pytest.mark.parametrize(("server", "every"), [(Server(404), 0.001), (Server(), 0.0)])
def test_nobody_looks_on_where_there_is_nothing_to_see(server: Server, every: float) -> None:
    assert watched(server, 0, every) == []
    assert server.looks == (1 if every else 0)


@pytest.mark.parametrize("error", [ConnectionRefusedError(), BrokenAnswer()])
def test_a_server_that_goes_away_leaves_what_was_seen(error: Exception) -> None:
    points = watched(Server(later=error), 4)
    assert [point.drafted for point in points] == [11, 12, 13]


def test_a_server_that_is_slow_to_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Server):
        async def get(self, route: str, sink: AnswerSink) -> None:
            await super().get(route, sink)
            if self.looks == 2:
                await asyncio.sleep(3600)

    monkeypatch.setattr(gauges, "_PATIENCE", 0.01)
    assert [point.drafted for point in watched(Slow(), 3)][:2] == [11, 13]
