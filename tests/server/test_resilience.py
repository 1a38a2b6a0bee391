"""What a server bears: a thousand streams, clients that leave, engines that die, steps that throw, slow readers.

Real processes, the real default model, real sockets. The slow marks run the full scale, the others a small one.
"""

import asyncio
import json
import os
import random
import signal
import socket
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.live import LiveServer, running_server
from tests.server.load import CHAT, COMPLETIONS, Answer, all_at_once, ask, client_of, read_stream
from tests.server.throwing.sitecustomize import MARK, TOO_LARGE

KEY = "a-key-for-tests"
THROWING = Path(__file__).with_name("throwing")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """Its steps throw for marked requests; its key opens /debug."""
    with running_server(tmp_path_factory.mktemp("resilience"), key=KEY, python_path=THROWING) as server:
        yield server


def wait_until_quiet(server: LiveServer) -> dict[str, Any]:
    """Nothing runs any more; returns what a check of the books says."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        checked = server.get("/debug/check")
        if checked["live_requests"] == 0 and all(engine["used_blocks"] == 0 for engine in checked["engines"]):
            return checked
        time.sleep(0.05)
    raise AssertionError(f"something is still running: {checked}")


def assert_nothing_is_left(server: LiveServer) -> None:
    checked = wait_until_quiet(server)
    assert [engine["problem"] for engine in checked["engines"]] == [None] * len(checked["engines"])
    deadline = time.monotonic() + 10  # metrics follow the engine's next report
    while server.metric("quire_kv_blocks", state="used") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert server.metric("quire_kv_blocks", state="used") == 0
    assert server.metric("quire_num_requests_running") == 0
    assert server.metric("quire_num_requests_waiting") == 0


def stream_body(number: int, tokens: int) -> dict[str, Any]:
    return {"prompt": f"Number {number} of the list is", "max_tokens": tokens, "temperature": 0, "ignore_eos": True}


async def many_streams(server: LiveServer, count: int, tokens: int, leaving: set[int]) -> list[Answer]:
    chance = random.Random(5)
    async with client_of(server.url, server.headers) as client:
        work = [
            partial(
                read_stream,
                client,
                COMPLETIONS,
                stream_body(number, tokens),
                chance.randrange(0, tokens) if number in leaving else None,
            )
            for number in range(count)
        ]
        return await all_at_once(work)


@pytest.mark.parametrize(
    ("count", "tokens", "leavers"), [(30, 6, 8), pytest.param(1000, 32, 200, marks=pytest.mark.slow)]
)
def test_many_streams_none_lost_none_doubled(server, count, tokens, leavers):
    first = asyncio.run(many_streams(server, max(20, count // 10), tokens, set()))  # warm: buffers and caches are made
    assert all(answer.is_done for answer in first)
    wait_until_quiet(server)
    before, began = server.memory(), time.monotonic()
    leaving = set(random.Random(3).sample(range(count), leavers))
    answers = asyncio.run(many_streams(server, count, tokens, leaving))
    seconds = time.monotonic() - began
    for number, answer in enumerate(answers):
        assert answer.status == 200, answer.error
        if number not in leaving:
            assert answer.is_done
            assert (answer.tokens, answer.reasons) == (tokens, {0: "length"})
    for number, answer in enumerate(first):  # greedy: the same prompt has the same text however full the server is
        if number not in leaving:
            assert answers[number].texts == answer.texts
    assert_nothing_is_left(server)
    grown = server.memory() - before
    print(
        f"\n{count} streams of {tokens} tokens, {leavers} left early: {seconds:.1f} s, memory {grown / 2**20:+.1f} MiB"
    )
    assert grown < 64 * 2**20


def mixed(count: int, tokens: int) -> list[tuple[str, dict[str, Any]]]:
    """Requests of every kind, all with one right answer."""
    bodies: list[tuple[str, dict[str, Any]]] = []
    for number in range(count):
        body: dict[str, Any] = {"max_tokens": tokens, "temperature": 0}
        if number % 3 == 0:
            body |= {"messages": [{"role": "user", "content": f"Count from {number}."}]}
        else:
            body |= {"prompt": f"The {number}th letter is"}
        kind = number % 5
        if kind == 1:
            body |= {"n": 2, "temperature": 1.0, "seed": number}
        elif kind == 2:
            body |= {"stop": ["e", "\n"]}
        elif kind == 3:
            body |= {"ignore_eos": True, "min_tokens": tokens}
        elif kind == 4:
            body |= {"temperature": 0.8, "seed": number, "repetition_penalty": 1.2}
        if number % 2:
            body["stream"] = True
        bodies.append((CHAT if number % 3 == 0 else COMPLETIONS, body))
    return bodies


async def ask_all(server: LiveServer, bodies: list[tuple[str, dict[str, Any]]]) -> list[Answer]:
    async with client_of(server.url, server.headers) as client:
        return await all_at_once([partial(ask, client, path, body) for path, body in bodies])


async def ask_all_while_killing(
    server: LiveServer, bodies: list[tuple[str, dict[str, Any]]], kills: int
) -> list[Answer]:
    """With so many kills, or as many as there is time for: a fast machine has answered all after the first."""
    running = asyncio.ensure_future(ask_all(server, bodies))
    killed = 0
    async with client_of(server.url, server.headers) as client:
        while killed < kills and await _is_stepping(client, running):
            [engine] = (await client.get("/stats")).json()["engines"]
            os.kill(engine["pid"], signal.SIGKILL)
            killed += 1
    answers = await running
    assert killed, "all was answered before an engine could be killed"
    return answers


async def _is_stepping(client: httpx.AsyncClient, running: "asyncio.Future[list[Answer]]") -> bool:
    """Wait until the engine is there and has made a few steps with requests in them; False: all are answered."""
    first: int | None = None
    while not running.done():
        [engine] = (await client.get("/stats")).json()["engines"]
        if engine["state"] == "ready" and engine["running"]:
            first = engine["step"] if first is None or engine["step"] < first else first
            if engine["step"] >= first + 3:
                return True
        await asyncio.sleep(0.01)
    return False


@pytest.mark.parametrize(("count", "tokens", "kills"), [(12, 40, 2), pytest.param(50, 40, 3, marks=pytest.mark.slow)])
def test_killed_engines_lose_no_request(server, count, tokens, kills):
    bodies = mixed(count, tokens)
    expected = asyncio.run(ask_all(server, bodies))
    restarts = sum(engine["restarts"] for engine in server.get("/stats")["engines"])
    answers = asyncio.run(ask_all_while_killing(server, bodies, kills))
    assert [answer.error for answer in answers] == [None] * count
    assert all(answer.is_done for answer in answers)
    assert [(answer.texts, answer.reasons, answer.tokens) for answer in answers] == [
        (answer.texts, answer.reasons, answer.tokens) for answer in expected
    ]
    killed = sum(engine["restarts"] for engine in server.get("/stats")["engines"]) - restarts
    assert 1 <= killed <= kills
    assert_nothing_is_left(server)
    print(f"\n{count} mixed requests, {killed} engines killed: all complete, all texts equal")


def test_a_step_that_throws_fails_its_request_alone(server):
    bodies = [(path, body | {"max_tokens": 10}) for path, body in mixed(20, 10)]
    expected = asyncio.run(ask_all(server, bodies))
    poison = (CHAT, {"messages": [{"role": "user", "content": "bad"}], "max_tokens": 10, "seed": MARK})
    streamed = (COMPLETIONS, {"prompt": "bad", "max_tokens": 10, "seed": MARK, "stream": True})
    pids = server.engine_pids()
    *neighbours, failed, broken = asyncio.run(ask_all(server, [*bodies, poison, streamed]))
    assert [(answer.texts, answer.reasons) for answer in neighbours] == [
        (answer.texts, answer.reasons) for answer in expected
    ]
    assert failed.status == 500
    assert failed.error is not None
    assert failed.error["type"] == "server_error"
    assert "req_" in failed.error["message"], "the error names the request"
    assert broken.error is not None
    assert not broken.texts.get(0)
    assert server.engine_pids() == pids, "no engine was replaced"
    assert_nothing_is_left(server)


def test_a_request_too_large_for_the_device_fails_alone_and_says_what_to_do(server):
    bodies = [(path, body | {"max_tokens": 10}) for path, body in mixed(20, 10)]
    expected = asyncio.run(ask_all(server, bodies))
    poison = (CHAT, {"messages": [{"role": "user", "content": "bad"}], "max_tokens": 10, "seed": TOO_LARGE})
    pids, before = server.engine_pids(), server.metric("quire_engine_out_of_memory_total")
    *neighbours, failed = asyncio.run(ask_all(server, [*bodies, poison]))
    assert [(answer.texts, answer.reasons) for answer in neighbours] == [
        (answer.texts, answer.reasons) for answer in expected
    ]
    assert failed.status == 500
    assert failed.error is not None
    assert failed.error["type"] == "server_error"
    assert "ran out of memory" in failed.error["message"]
    assert "--max-num-batched-tokens" in failed.error["message"]
    assert server.engine_pids() == pids, "no engine was replaced"
    assert_nothing_is_left(server)
    assert server.metric("quire_engine_out_of_memory_total") > before


class SlowReader:
    """Asks for a long stream and takes a byte of it now and then."""

    def __init__(self, server: LiveServer, tokens: int) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        host, port = server.url.removeprefix("http://").split(":")
        self._socket.connect((host, int(port)))
        body = {"prompt": "Slowly", "max_tokens": tokens, "ignore_eos": True, "stream": True, "logprobs": 20, "n": 8}
        data = json.dumps(body).encode()
        self._socket.sendall(
            f"POST {COMPLETIONS} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {server.key}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n".encode()
            + data
        )

    async def read(self) -> None:
        self._socket.setblocking(False)
        while True:
            await asyncio.get_running_loop().sock_recv(self._socket, 1)
            await asyncio.sleep(1)

    def close(self) -> None:
        self._socket.close()


async def timed_neighbours(server: LiveServer, count: int, tokens: int) -> tuple[float, list[Answer]]:
    began = time.monotonic()
    async with client_of(server.url, server.headers) as client:
        work = [partial(read_stream, client, COMPLETIONS, stream_body(i, tokens)) for i in range(count)]
        answers = await all_at_once(work)
    return time.monotonic() - began, answers


def test_a_slow_reader_is_paused_and_slows_nobody(server):
    async def scenario() -> tuple[float, float, int]:
        alone, expected = await timed_neighbours(server, 20, 8)
        slow = SlowReader(server, 2000)
        reading = asyncio.ensure_future(slow.read())
        while not server.metric("quire_slow_readers_paused_total"):
            await asyncio.sleep(0.2)
        before = server.memory()
        beside, answers = await timed_neighbours(server, 20, 8)
        assert [answer.texts for answer in answers] == [answer.texts for answer in expected]
        assert all(answer.is_done for answer in answers)
        assert server.get("/stats")["held"] == 8
        grown = server.memory() - before
        reading.cancel()
        slow.close()
        return alone, beside, grown

    alone, beside, grown = asyncio.run(scenario())
    print(f"\n20 streams: {alone:.1f} s alone, {beside:.1f} s beside a slow reader; memory {grown / 2**20:+.1f} MiB")
    assert grown < 16 * 2**20
    assert_nothing_is_left(server)


def test_sigterm_finishes_what_runs_and_a_second_one_does_not_wait(tmp_path):
    with running_server(tmp_path) as server, server.client() as client:
        body = stream_body(1, 40) | {"stream": True}
        with client.stream("POST", COMPLETIONS, json=body) as response:
            lines = response.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGTERM)
            text = "\n".join(lines)
        assert text.rstrip().endswith("data: [DONE]")
        assert server.process.wait(60) == 0
    with running_server(tmp_path) as server, server.client() as client:
        body = stream_body(1, 4000) | {"stream": True}
        with client.stream("POST", COMPLETIONS, json=body) as response:
            lines = response.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGTERM)
            while "draining" not in server.tail():
                time.sleep(0.02)
            server.process.send_signal(signal.SIGTERM)
            with pytest.raises(httpx.TransportError):
                list(lines)
        assert server.process.wait(60) == 1
