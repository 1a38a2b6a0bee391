"""/debug/profile on a real server: steps that run meanwhile are recorded, and an idle engine is no empty trace."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.server.live import LiveServer, running_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with running_server(tmp_path_factory.mktemp("profile"), key="sesame") as started:
        yield started


def test_an_idle_engine_says_so_and_the_next_profile_is_whole(server: LiveServer) -> None:
    with server.client() as client, ThreadPoolExecutor(1) as beside:
        idle = client.post("/debug/profile?seconds=1")
        assert idle.status_code == 503
        assert "the engine is idle: no step ran within 1 s" in idle.json()["error"]["message"]
        recording = beside.submit(client.post, "/debug/profile?steps=3&seconds=60")
        while not recording.done():
            client.post("/v1/completions", json={"prompt": "One two", "max_tokens": 4}).raise_for_status()
        answer = recording.result().raise_for_status()
        assert answer.headers["x-quire-steps"] == "3"
        assert answer.json()["traceEvents"]


def test_what_ran_within_the_time_is_recorded(server: LiveServer) -> None:
    with server.client() as client, ThreadPoolExecutor(1) as beside:
        recording = beside.submit(client.post, "/debug/profile?steps=1000&seconds=2")
        while not recording.done():
            client.post("/v1/completions", json={"prompt": "One two", "max_tokens": 4}).raise_for_status()
        assert 0 < int(recording.result().raise_for_status().headers["x-quire-steps"]) < 1000
