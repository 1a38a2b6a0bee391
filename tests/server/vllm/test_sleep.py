"""Sleep over HTTP with the real default model: memory is given back, and a request wakes the engine up."""

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.server.live import LiveServer, running_server

KEY = "an-admin-key-for-tests"
ASKED = {"messages": [{"role": "user", "content": "Say hi."}], "max_tokens": 5, "temperature": 0}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    options = ("--max-model-len", "2048", "--vllm-metrics")
    with running_server(tmp_path_factory.mktemp("server"), *options, key=KEY) as server:
        yield server


@pytest.fixture
def client(server: LiveServer) -> Iterator[httpx.Client]:
    with server.client() as found:
        yield found


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGESIZE")


def answer(client: httpx.Client) -> str:
    found = client.post("/v1/chat/completions", json=ASKED)
    assert found.status_code == 200, found.text
    text: str = found.json()["choices"][0]["message"]["content"]
    return text


@pytest.mark.parametrize("level", [1, 2])
def test_memory_is_given_back_and_a_request_wakes_it_up(server: LiveServer, client: httpx.Client, level: int) -> None:
    wanted = answer(client)
    [pid] = server.engine_pids()
    awake = resident(pid)
    assert client.get("/is_sleeping").json() == {"is_sleeping": False}
    assert client.post(f"/sleep?level={level}").status_code == 200
    assert client.get("/is_sleeping").json() == {"is_sleeping": True}
    assert client.get("/health").json() == {"status": "asleep"}
    assert server.get("/stats")["engines"][0]["sleep_level"] == level
    assert server.metric("quire_engine_sleep_level") == level
    assert awake - resident(pid) > 80 << 20  # of 135 million weights in 8 bits and what was computed with them
    assert client.get("/ready").status_code == 200
    assert answer(client) == wanted
    assert client.get("/health").json() == {"status": "ok"}
    assert server.engine_pids() == [pid]


def test_it_can_be_woken_up_before_a_request_comes(server: LiveServer, client: httpx.Client) -> None:
    assert client.post("/sleep").status_code == 200
    assert client.post("/wake_up").status_code == 200
    assert client.get("/is_sleeping").json() == {"is_sleeping": False}
    assert server.metric("quire_engine_wakes_total") >= 1
    assert server.metric("quire_engine_wake_seconds") > 0


@pytest.mark.parametrize("query", ["level=3", "level=x", "tags=weights"])
def test_what_is_not_known_is_refused(client: httpx.Client, query: str) -> None:
    refused = client.post(f"/sleep?{query}")
    assert refused.status_code == 400
    assert query.partition("=")[0] in refused.json()["error"]["message"]


def test_only_admins_may(server: LiveServer) -> None:
    for method, path in (("POST", "/sleep"), ("POST", "/wake_up"), ("GET", "/is_sleeping")):
        assert httpx.request(method, server.url + path).status_code in {401, 403}


def test_metrics_have_vllms_names_too(server: LiveServer, client: httpx.Client) -> None:
    answer(client)
    assert server.metric("vllm:generation_tokens_total") == server.metric("quire_generation_tokens_total") > 0
