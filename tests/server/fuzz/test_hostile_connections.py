"""Bytes that are no HTTP, or only just: on a bare socket, while somebody else is being answered."""

import re
import socket
import urllib.parse

from tests.server.fuzz.conftest import Bystander
from tests.server.live import LiveServer

BODY = b'{"prompt": "Hi", "max_tokens": 1}'
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"


def exchange(server: LiveServer, sent: bytes, *, end: bool = True) -> bytes:
    """What comes back until the server hangs up. With `end`, nothing more will be sent, and the server knows."""
    address = urllib.parse.urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port), timeout=60) as connection:
        received = b""
        try:
            connection.sendall(sent)
            if end:
                connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(65536):
                received += piece
        except OSError:  # the server hung up first, which shows in more ways than one
            pass
        return received


def statuses(received: bytes) -> list[int]:
    """The status of every answer in what came back."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", received)]


NO_REQUESTS: list[bytes] = [
    b"\0" * 1000,
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x5a" * 500,  # a TLS hello
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"BREW /v1/completions HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    GET + b"X: " + b"y" * (2 << 20) + b"\r\n\r\n",
    GET + b"".join(b"X-%d: y\r\n" % place for place in range(50_000)) + b"\r\n",
    GET.replace(b"/health", b"/" + b"x" * (1 << 20)) + b"\r\n",
    GET + b"Bad header\r\n\r\n",
    GET + b"X: a\nY: b\r\n Z: folded\r\n\r\n",
    HEAD + b"Content-Length: -5\r\n\r\n" + BODY,
    HEAD + b"Content-Length: 99999999999999999999\r\n\r\n" + BODY,
    HEAD + b"Content-Length: five\r\n\r\n" + BODY,
    HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n" + BODY,
    HEAD + b"Content-Length: 33\r\nTransfer-Encoding: chunked\r\n\r\n" + BODY,
    HEAD + b"Transfer-Encoding: chunked\r\n\r\nZZZ\r\n" + BODY + b"\r\n0\r\n\r\n",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n" + BODY,
    HEAD + b"Content-Length: 1000\r\n\r\n" + BODY,  # the rest never comes
    HEAD + b"Content-Length: 1000\r\nExpect: 100-continue\r\n\r\n",
    b"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    GET + b"Authorization: Bearer " + b"\xff" * 100 + b"\r\n\r\n",
    GET + b"X-Request-Deadline: 1e999\r\n\r\n",
    GET + b"X-Request-Id: " + b"\x01\x02" + b"\r\n\r\n",
]


def test_what_is_no_request_gets_no_server_error(fuzzed_server: LiveServer, bystander: Bystander) -> None:
    for sent in NO_REQUESTS:
        for status in statuses(exchange(fuzzed_server, sent)):
            assert status < 500, sent[:200]


def test_requests_sent_in_a_row_are_all_answered_unless_garbage_comes_with_them(fuzzed_server: LiveServer) -> None:
    post = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
    last = GET + b"Connection: close\r\n\r\n"
    assert statuses(exchange(fuzzed_server, GET + b"\r\n" + post + last, end=False)) == [200, 200, 200]
    found = statuses(exchange(fuzzed_server, GET + b"\r\n" + post + b"\0garbage\r\n\r\n" * 100, end=False))
    assert found
    assert all(status == 200 or 400 <= status < 500 for status in found)


def test_many_connections_that_say_nothing(fuzzed_server: LiveServer, bystander: Bystander) -> None:
    address = urllib.parse.urlsplit(fuzzed_server.url)
    silent = [socket.create_connection((address.hostname, address.port), timeout=60) for _ in range(200)]
    try:
        for connection in silent:
            connection.sendall(HEAD)  # a head that never ends
        assert statuses(exchange(fuzzed_server, GET + b"Connection: close\r\n\r\n", end=False)) == [200]
    finally:
        for connection in silent:
            connection.close()
