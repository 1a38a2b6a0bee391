"""Fetching: only what is allowed, only public addresses, only the address that was checked, and no redirects."""

import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from quire.config.multimodal import MultimodalConfig
from quire.core.errors import InvalidRequest
from quire.multimodal import fetch
from quire.multimodal.fetch import MediaFetcher, is_public

_NAME = "pictures.example"


@contextmanager
def _web(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Names and their addresses, one list for each time that they are looked up; this machine counts as public."""
    answers: dict[str, list[str]] = {}

    real = socket.getaddrinfo

    def look_up(host: str, port: int, *given: Any, **named: Any) -> list[Any]:
        if host not in answers:  # an address, which whoever connects asks for
            return real(host, port, *given, **named)
        found = answers[host].pop(0) if len(answers[host]) > 1 else answers[host][0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (found, port))]

    monkeypatch.setattr(fetch.socket, "getaddrinfo", look_up)
    return answers


def _fetcher(port: int, **settings: Any) -> MediaFetcher:
    return MediaFetcher(MultimodalConfig(allowed_media_domains=f"{_NAME}:{port}", **settings))


def _public(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "is_public", lambda address: str(address) == "127.0.0.1")


def _send(handler: BaseHTTPRequestHandler, body: bytes, status: int = 200, **headers: str) -> None:
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


def test_what_is_allowed_is_fetched(resolved: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    _public(monkeypatch)
    resolved[_NAME] = ["127.0.0.1"]
    asked: list[str] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked.append(f"{handler.headers['Host']} {handler.path}")
        _send(handler, b"picture")

    with _web(answer) as port:
        assert _fetcher(port).load(f"http://{_NAME}:{port}/a.png?b=c", "x") == b"picture"
        assert asked == [f"{_NAME}:{port} /a.png?b=c"]


def test_a_name_that_changes_its_address_is_asked_where_it_was_checked(
    resolved: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _public(monkeypatch)
    resolved[_NAME] = ["127.0.0.1", "10.0.0.1"]  # the second answer would be used by whoever asks again
    with _web(lambda handler: _send(handler, b"picture")) as port:
        assert _fetcher(port).load(f"http://{_NAME}:{port}/", "x") == b"picture"
    assert resolved[_NAME] == ["10.0.0.1"], "the name was looked up once"


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "192.168.0.1", "::1", "fd00::1"])
def test_names_of_private_addresses_are_refused(resolved: dict[str, list[str]], address: str) -> None:
    resolved[_NAME] = [address]
    with pytest.raises(InvalidRequest, match="not public"):
        _fetcher(9).load(f"http://{_NAME}:9/", "x")


def test_redirects_are_not_followed(resolved: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    _public(monkeypatch)
    resolved[_NAME] = ["127.0.0.1"]
    with (
        _web(lambda handler: _send(handler, b"", 302, Location="http://169.254.169.254/")) as port,
        pytest.raises(InvalidRequest, match="redirects are not followed"),
    ):
        _fetcher(port).load(f"http://{_NAME}:{port}/", "x")


def test_bodies_are_bounded_whatever_they_say(resolved: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    _public(monkeypatch)
    resolved[_NAME] = ["127.0.0.1"]

    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            while True:
                handler.wfile.write(b"\0" * 65536)
        except OSError:
            return

    with _web(endless) as port, pytest.raises(InvalidRequest, match="more than"):
        _fetcher(port, media_max_mb=1).load(f"http://{_NAME}:{port}/", "x")


def test_a_host_that_drips_is_cut(resolved: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    _public(monkeypatch)
    resolved[_NAME] = ["127.0.0.1"]
    over = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        try:
            while not over.wait(0.05):
                handler.wfile.write(b"H")
                handler.wfile.flush()
        except OSError:
            return

    with _web(drip) as port:
        begun = time.monotonic()
        with pytest.raises(InvalidRequest, match="cannot be fetched"):
            _fetcher(port, media_fetch_seconds=0.5).load(f"http://{_NAME}:{port}/", "x")
        over.set()
        assert time.monotonic() - begun < 60, "it would never end by itself"


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2001:4860:4860::8888", True),
        ("0.0.0.0", False),
        ("100.64.0.1", False),
        ("224.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("2002:7f00:1::", False),
        ("64:ff9b::a00:1", False),
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", False),
    ],
)
def test_which_addresses_are_public(address: str, public: bool) -> None:
    assert is_public(ipaddress.ip_address(address)) is public


def test_hosts_are_matched_whole() -> None:
    fetcher = MediaFetcher(MultimodalConfig(allowed_media_domains="*.example.org, example.net"))
    for url in (
        "http://example.org.evil.test/",
        "http://example.net.evil.test/",
        "http://notexample.net/",
        "http:///x",
    ):
        with pytest.raises(InvalidRequest, match="not among"):
            fetcher.load(url, "x")


def test_local_files_only_below_the_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a b.png").write_bytes(b"picture")
    fetcher = MediaFetcher(MultimodalConfig(allowed_local_media_path=str(tmp_path / "in")))
    assert fetcher.load(f"file://{tmp_path}/in/a%20b.png", "x") == b"picture"
    with pytest.raises(InvalidRequest, match="not set"):
        MediaFetcher(MultimodalConfig()).load(f"file://{tmp_path}/in/a%20b.png", "x")
