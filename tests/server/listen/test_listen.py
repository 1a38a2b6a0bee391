"""Listening: taken ports are told at once, signals drain and abort, and what runs comes to its end."""

import asyncio
import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from quire.config.observe import ObserveConfig
from quire.observe.logs import RequestLog
from quire.server.drain import Drain
from quire.server.errors import exception_handlers
from quire.server.gate.gate import guarded
from tests.server.gate.gate_app import ALICE, Metrics, Seen, application, ring, stream
from tests.server.served import PATIENCE, Served, read_all, served

ROOT = Path(__file__).parents[3]
KEY = "key-one"


# -- draining -----------------------------------------------------------------------------------------------------


def streaming(drain: Drain) -> ASGIApp:
    """A route that streams until the drain has begun and someone has been refused because of it."""
    refused = Seen()

    async def flow(request: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"first\n"
            while "draining" not in refused.refusals:
                await asyncio.sleep(0.01)
            yield b"last\n"

        return StreamingResponse(pieces())

    async def health(request: Request) -> Response:
        return Response("draining" if drain.begun else "ok")

    routes = [
        Route("/v1/flow", flow, methods=["POST"]),
        Route("/health", health),
        WebSocketRoute("/v1/stream", stream),
    ]
    return guarded(
        Starlette(routes=routes, exception_handlers=exception_handlers()),
        keys=None,
        drain=drain,
        metrics=Metrics(refused),
        log=RequestLog(ObserveConfig()),
    )


def on_loop(server: Served, call: Callable[[], object]) -> None:
    done = threading.Event()
    server.loop.call_soon_threadsafe(lambda: (call(), done.set()))
    assert done.wait(PATIENCE)


def wait_for_drain(url: str) -> None:
    for _ in range(10_000):
        if httpx.get(url + "/health").text == "draining":
            return
    pytest.fail("the drain never began")


def test_a_drain_lets_a_stream_end_and_refuses_new_work() -> None:
    drain = Drain()
    with served(streaming(drain), drain) as server:
        with server.connect() as idle, httpx.stream("POST", server.url + "/v1/flow", timeout=PATIENCE) as answer:
            idle.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert idle.recv(65536).endswith(b"ok")
            lines = answer.iter_lines()
            assert next(lines) == "first"
            server.stop()
            wait_for_drain(server.url)
            late = httpx.post(server.url + "/v1/flow")
            assert late.status_code == 503
            assert late.headers["retry-after"] == "5"
            assert list(lines) == ["last"]
            assert read_all(idle) == b"", "idle connections are closed at the end"
        assert server.finished() == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(server.url + "/health")


def test_the_drain_waits_for_all_work() -> None:
    drain = Drain()
    with served(application(drain=drain), drain) as server:
        work = drain.work()
        on_loop(server, work.__enter__)
        server.stop()
        for _ in range(100):
            assert httpx.get(server.url + "/health").text == "ok"
        assert server.thread.is_alive()
        on_loop(server, lambda: work.__exit__(None, None, None))
        assert server.finished() == 0


def test_a_second_signal_ends_at_once() -> None:
    drain = Drain()
    with served(streaming(drain), drain) as server, httpx.stream("POST", server.url + "/v1/flow") as answer:
        lines = answer.iter_lines()
        assert next(lines) == "first"
        server.stop()
        server.stop()
        with pytest.raises(httpx.TransportError):
            list(lines)
        assert server.finished() == 1


@pytest.mark.parametrize("seconds", [0, 0.05])
def test_a_drain_that_takes_too_long_is_cut_off(seconds: float) -> None:
    drain = Drain()
    with (
        served(streaming(drain), drain, drain_timeout=seconds) as server,
        httpx.stream("POST", server.url + "/v1/flow") as answer,
    ):
        lines = answer.iter_lines()
        assert next(lines) == "first"
        server.stop()
        with pytest.raises(httpx.TransportError):
            list(lines)
        assert server.finished() == 0


def test_a_reader_that_stopped_reading_does_not_hold_the_exit() -> None:
    drain = Drain()

    async def much(request: Request) -> Response:
        return Response(b"x" * 20_000_000)

    app = Starlette(routes=[Route("/much", much)])
    with served(app, drain, slow_reader_timeout=0.2) as server, server.connect() as reader:
        reader.sendall(b"GET /much HTTP/1.1\r\nHost: x\r\n\r\n")
        assert reader.recv(100).startswith(b"HTTP/1.1 200")
        server.stop()
        assert server.finished() == 0


# -- sockets over the wire ----------------------------------------------------------------------------------------


def test_websockets_over_a_real_socket() -> None:
    drain = Drain()
    with served(application(keys=ring(), drain=drain), drain, max_body_mb=0.01) as server:
        url = server.url.replace("http", "ws") + "/v1/stream"
        with pytest.raises(InvalidStatus) as caught:
            connect(url)
        assert caught.value.response.status_code == 401
        assert b"invalid_api_key" in (caught.value.response.body or b"")
        with connect(url, subprotocols=["quire", f"quire.key.{ALICE}"]) as session:  # type: ignore[list-item]
            assert '"alice"' in str(session.recv())
            assert session.subprotocol == "quire"
        with connect(url, additional_headers={"x-api-key": ALICE}) as session:
            assert session.response is not None
            assert session.response.headers["x-request-id"]
            session.recv()
            with pytest.raises(ConnectionClosed):
                session.recv()


@pytest.mark.parametrize("fragmented", [False, True])
def test_frames_and_their_fragments_are_bounded(fragmented: bool) -> None:
    drain = Drain()

    async def echo(session: WebSocket) -> None:
        await session.accept()
        while True:
            await session.send_text(str(len(await session.receive_text())))

    app = Starlette(routes=[WebSocketRoute("/", echo)])
    with served(app, drain, max_body_mb=0.01) as server, connect(server.url.replace("http", "ws")) as session:
        session.send(iter(["x" * 5000, "x" * 5000]))
        assert session.recv() == "10000"
        with suppress(ConnectionClosed):  # of fragments, maybe before the last is sent
            session.send(iter(["x" * 1000] * 11) if fragmented else "x" * 11_000)
        with pytest.raises(ConnectionClosed) as caught:
            session.recv()
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1009


# -- addresses as they are sent -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def locked() -> Iterator[Served]:
    drain = Drain()
    with served(application(keys=ring(), drain=drain), drain) as running:
        yield running


@pytest.mark.parametrize(
    "target",
    [
        b"/metrics", b"//health", b"/health/", b"/health/../metrics", b"/health%2f..%2fmetrics", b"/metrics#/health",
        b"/health;x", b"/health%00", b"/./health", b"/%2e/metrics", b"http://x/metrics", b"http://x/health/../metrics",
        b"http://health/metrics?/health", b"*", b"health", b"/metrics?/../health", b"/HEALTH", b"/health%20", b"?",
        b"/\xff", b"/%ff", b"http://", b"http:///health@x/metrics", b"/metrics/%2e%2e/health",
    ],
)  # fmt: skip
def test_no_spelling_of_an_address_goes_round_the_key(locked: Served, target: bytes) -> None:
    headers = b"Host: /health\r\nX-Original-URL: /health\r\nX-Forwarded-Path: /health\r\nConnection: close\r\n"
    answer = locked.exchange(b"GET " + target + b" HTTP/1.1\r\n" + headers + b"\r\n")
    assert answer.split(b" ", 2)[1] in (b"400", b"401"), answer[:300]


@pytest.mark.parametrize("target", [b"/health", b"/%68ealth", b"http://x/health", b"/health?x=1"])
def test_health_is_open_however_it_is_spelled(locked: Served, target: bytes) -> None:
    answer = locked.exchange(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert answer.endswith(b"\r\n\r\nok")


# -- a process and its signals ------------------------------------------------------------------------------------


@contextmanager
def process(tmp_path: Path, *arguments: str) -> Iterator[tuple["subprocess.Popen[str]", str, Path]]:
    keys = tmp_path / "keys.yaml"
    keys.write_text(f"one: {{sha256: {hashlib.sha256(KEY.encode()).hexdigest()}}}\n")
    keys.chmod(0o600)
    command = [sys.executable, "-m", "tests.server.listen.listen_process", str(keys), *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            url = running.stdout.readline().strip()
            assert url.startswith("http://127.0.0.1:"), running.stderr and running.stderr.read()
            yield running, url, keys
        finally:
            running.kill()


def line(running: "subprocess.Popen[str]") -> str:
    assert running.stdout is not None
    return running.stdout.readline().strip()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_the_process_ends_well(tmp_path: Path, number: signal.Signals) -> None:
    with process(tmp_path) as (running, url, _):
        headers = {"authorization": f"Bearer {KEY}"}
        with httpx.stream("POST", url + "/v1/stream-it", headers=headers, timeout=PATIENCE) as answer:
            lines = answer.iter_lines()
            assert next(lines) == "first"
            os.kill(running.pid, number)
            wait_for_drain(url)
            assert httpx.post(url + "/v1/stream-it", headers=headers).status_code == 503
            assert httpx.get(url + "/release", headers=headers).text == "released"
            assert list(lines) == ["last"]
        assert running.wait(PATIENCE) == 0
        assert running.stderr is not None
        assert running.stderr.read() == ""


def test_two_signals_end_the_process(tmp_path: Path) -> None:
    with process(tmp_path) as (running, url, _):
        headers = {"authorization": f"Bearer {KEY}"}
        with httpx.stream("POST", url + "/v1/stream-it", headers=headers, timeout=PATIENCE) as answer:
            lines = answer.iter_lines()
            assert next(lines) == "first"
            os.kill(running.pid, signal.SIGTERM)
            wait_for_drain(url)
            os.kill(running.pid, signal.SIGTERM)
            assert running.wait(PATIENCE) == 1
        assert running.stderr is not None
        assert "Traceback" not in running.stderr.read()


def test_a_hangup_reads_the_keys_again(tmp_path: Path) -> None:
    with process(tmp_path) as (running, url, keys):
        assert httpx.get(url + "/nothing", headers={"x-api-key": KEY}).status_code == 404
        keys.write_text(f"two: {{sha256: {hashlib.sha256(b'key-two').hexdigest()}}}\n")
        os.kill(running.pid, signal.SIGHUP)
        assert line(running) == "reload True"
        assert httpx.get(url + "/nothing", headers={"x-api-key": KEY}).status_code == 401
        assert httpx.get(url + "/nothing", headers={"x-api-key": "key-two"}).status_code == 404
        keys.write_text("two: nonsense")
        os.kill(running.pid, signal.SIGHUP)
        assert line(running) == "reload False"
        assert httpx.get(url + "/nothing", headers={"x-api-key": "key-two"}).status_code == 404


def test_an_idle_server_ends_at_the_first_signal(tmp_path: Path) -> None:
    with (
        process(tmp_path, "5") as (running, url, _),
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))),
    ):
        assert httpx.get(url + "/health").text == "ok"
        os.kill(running.pid, signal.SIGTERM)
        assert running.wait(PATIENCE) == 0
