"""`--api-server-count`: real processes behind one port that act as one server, and outlive each other."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.server.gate.test_keys import hashed
from tests.server.live import LiveServer, running_server
from tests.server.load import COMPLETIONS, all_at_once, client_of, read_stream
from tests.server.test_reload import start_batch
from tests.server.test_resilience import ask_all, ask_all_while_killing, assert_nothing_is_left, mixed

FRONTS = 3
MASTER = "master"
SHORT = {"prompt": "One, two,", "max_tokens": 2, "temperature": 0}
LONG = {"prompt": "On and on", "max_tokens": 150, "temperature": 0, "ignore_eos": True}
LIMITED = {"few": "requests_per_minute: 5", "narrow": "concurrency: 2"}


def write_keys(path: Path, **fields: str) -> None:
    path.write_text("".join(f"{name}: {{sha256: {hashed(name)}, {field}}}\n" for name, field in fields.items()))
    path.chmod(0o600)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    folder = tmp_path_factory.mktemp("fronts")
    write_keys(folder / "keys.yaml", **LIMITED)
    options = ("--api-server-count", str(FRONTS), "--keys", str(folder / "keys.yaml"))
    scratch = folder / "tmp"
    scratch.mkdir()
    with running_server(folder, *options, key=MASTER, variables={"TMPDIR": str(scratch)}) as server:
        assert len(front_pids(server)) == FRONTS
        yield server
    assert list(scratch.iterdir()) == [], "fronts that were killed left something behind"


def front_pids(server: LiveServer) -> list[int]:
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    return [int(pid) for pid in children if b"fronts.child" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def metric_everywhere(server: LiveServer, name: str) -> set[float]:
    """What connections that the kernel gives to any front are told."""
    return {server.metric(name) for _ in range(4 * FRONTS)}


async def until_running(client: httpx.AsyncClient, count: int) -> None:
    async with asyncio.timeout(60):
        while (await client.get("/stats")).json()["running"] < count:
            await asyncio.sleep(0.02)


def wait_for(happened, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def test_all_fronts_answer_and_count_as_one(server: LiveServer) -> None:
    before = server.metric("quire_request_success_total")

    async def ask() -> list[str]:
        async with client_of(server.url, server.headers) as client:
            answers = await all_at_once([lambda: read_stream(client, COMPLETIONS, SHORT)] * 24)
            return [answer.texts[0] for answer in answers]

    assert len(set(asyncio.run(ask()))) == 1
    assert metric_everywhere(server, "quire_request_success_total") == {before + 24}
    assert metric_everywhere(server, "quire_fronts") == {FRONTS}
    assert {server.get("/stats")["totals"]["requests"] for _ in range(6)} == {before + 24}
    assert_nothing_is_left(server)


def test_a_limit_of_requests_holds_over_all_fronts(server: LiveServer) -> None:
    headers = {"Authorization": "Bearer few"}
    began = time.monotonic()
    statuses = [
        httpx.post(server.url + COMPLETIONS, json=SHORT, headers=headers, timeout=60).status_code
        for _ in range(4 * FRONTS)
    ]
    came_back = (time.monotonic() - began) / 12  # one every twelve seconds
    assert statuses[:5] == [200] * 5
    assert statuses.count(200) <= 5 + came_back
    assert set(statuses) <= {200, 429}


def test_a_limit_of_requests_at_once_holds_over_all_fronts(server: LiveServer) -> None:
    async def ask() -> list[int]:
        async with client_of(server.url, {"Authorization": "Bearer narrow"}) as client:
            answers = await all_at_once([lambda: read_stream(client, COMPLETIONS, LONG)] * (3 * FRONTS))
            return [answer.status for answer in answers]

    statuses = asyncio.run(ask())
    assert statuses.count(200) == 2
    assert statuses.count(429) == 3 * FRONTS - 2


def test_batches_and_files_are_the_same_everywhere(server: LiveServer) -> None:
    with server.client() as client:
        batch = start_batch(client, *[{"prompt": f"Line {n}", "max_tokens": 2} for n in range(3)])
    ended = lambda: {server.get(f"/v1/batches/{batch}")["status"] for _ in range(2 * FRONTS)} == {"completed"}  # noqa: E731
    wait_for(ended)
    listed = {json.dumps(server.get("/v1/batches")["data"][0]["request_counts"]) for _ in range(2 * FRONTS)}
    assert listed == {json.dumps({"total": 3, "completed": 3, "failed": 0})}
    for _ in range(2 * FRONTS):
        missing = httpx.get(server.url + "/v1/batches/batch_none", headers=server.headers, timeout=60)
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")
        again = httpx.post(server.url + f"/v1/batches/{batch}/cancel", headers=server.headers, timeout=60)
        assert again.status_code == 400
        assert "completed" in again.json()["error"]["message"]


def test_a_killed_front_takes_only_its_connections(server: LiveServer) -> None:
    counted, lost = server.metric("quire_request_success_total"), server.metric("quire_fronts_lost_total")
    victim = front_pids(server)[1]

    async def ask() -> list[str | None]:
        async def stream() -> str | None:
            try:
                answer = await read_stream(client, COMPLETIONS, LONG)
            except httpx.TransportError:
                return None
            return answer.texts[0] if answer.is_done else None

        async with client_of(server.url, server.headers) as client:
            running = asyncio.ensure_future(all_at_once([stream] * (6 * FRONTS)))
            await until_running(client, 6 * FRONTS)
            os.kill(victim, signal.SIGKILL)
            return await running

    texts = asyncio.run(ask())
    finished = [text for text in texts if text is not None]
    assert len(set(finished)) == 1
    assert 0 < len(finished) < len(texts)
    wait_for(lambda: len(front_pids(server)) == FRONTS and victim not in front_pids(server))
    wait_for(lambda: metric_everywhere(server, "quire_fronts") == {FRONTS})
    assert metric_everywhere(server, "quire_fronts_lost_total") == {lost + 1}
    assert min(metric_everywhere(server, "quire_request_success_total")) >= counted + len(finished)
    assert_nothing_is_left(server)  # what the dead front had asked for is aborted


@pytest.mark.slow
def test_a_stopped_front_is_replaced(server: LiveServer) -> None:
    victim = front_pids(server)[0]  # also the one that runs batches
    os.kill(victim, signal.SIGSTOP)
    wait_for(lambda: victim not in front_pids(server) and len(front_pids(server)) == FRONTS, 120)
    with server.client() as client:
        batch = start_batch(client, SHORT)
    wait_for(lambda: server.get(f"/v1/batches/{batch}")["status"] == "completed")
    assert server.get(f"/v1/batches/{batch}")["request_counts"]["completed"] == 1


@pytest.mark.parametrize(("count", "tokens", "kills"), [(12, 40, 2), pytest.param(50, 32, 3, marks=pytest.mark.slow)])
def test_killed_engines_lose_no_request_of_any_front(server: LiveServer, count: int, tokens: int, kills: int) -> None:
    bodies = mixed(count, tokens)
    expected = asyncio.run(ask_all(server, bodies))
    answers = asyncio.run(ask_all_while_killing(server, bodies, kills))
    assert [answer.error for answer in answers] == [None] * count
    assert [(answer.texts, answer.reasons, answer.tokens) for answer in answers] == [
        (answer.texts, answer.reasons, answer.tokens) for answer in expected
    ]
    assert_nothing_is_left(server)


def test_keys_are_read_again_by_all_fronts(server: LiveServer) -> None:
    write_keys(server.log.parent / "keys.yaml", **LIMITED, late="concurrency: 9")
    server.process.send_signal(signal.SIGHUP)
    late = {"Authorization": "Bearer late"}
    wait_for(
        lambda: (
            {httpx.get(server.url + "/v1/models", headers=late, timeout=60).status_code for _ in range(4 * FRONTS)}
            == {200}
        )
    )


def test_sigterm_lets_every_front_finish(tmp_path: Path) -> None:
    with running_server(tmp_path, "--api-server-count", "2") as server:

        async def ask() -> list[bool]:
            async with client_of(server.url) as client:
                running = asyncio.ensure_future(all_at_once([lambda: read_stream(client, COMPLETIONS, LONG)] * 6))
                await until_running(client, 6)
                server.process.send_signal(signal.SIGTERM)
                return [answer.is_done for answer in await running]

        assert asyncio.run(ask()) == [True] * 6
        assert server.stop() == 0
    assert not Path(f"/proc/{server.process.pid}").exists()


def test_settings_that_cannot_work_end_the_server_with_one_line(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="ended with 2") as caught:  # noqa: SIM117
        with running_server(tmp_path, "--api-server-count", "2", "--chat-template", str(tmp_path / "none.jinja")):
            pass
    assert str(caught.value).count("none.jinja") == 1


def test_sigterm_ends_a_server_whose_fronts_still_start(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "quire", "serve", "--port", "0", "--api-server-count", "2"]
    process = subprocess.Popen([*command, "--store", str(tmp_path)], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert "fronts listen on" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 0, rest
