"""What comes before a request is one is bounded: floods, dribbles and nonsense over a real socket."""

import json
import select
import socket
from collections.abc import Iterator

import pytest

from quire.server.drain import Drain
from tests.server.gate.gate_app import application
from tests.server.served import PATIENCE, Served, read_all, served

CLOSE = b"Connection: close\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    drain = Drain()
    with served(application(drain=drain), drain, max_header_kb=8.0) as running:
        yield running


def refusal(answer: bytes, status: int) -> dict[str, str]:
    """The error in a raw answer, which must be whole and of our shape."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), answer[:200]
    assert b"x-request-id: req_" in head
    assert b"connection: close" in head
    assert b"server:" not in head.lower()
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return dict(error)


def assert_alive(server: Served) -> None:
    assert server.exchange(b"GET /health HTTP/1.1\r\nHost: x\r\n" + CLOSE + b"\r\n").endswith(b"ok")


def test_a_plain_request(server: Served) -> None:
    assert_alive(server)


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b"GET / HTTP/1.1\r\n" + b"".join(b"h%d: x\r\n" % i for i in range(200)) + b"\r\n", 431, "headers_too_large"),
        (b"GET / HTTP/1.1\r\nbig: " + b"x" * 9000 + b"\r\n\r\n", 431, "headers_too_large"),
        (b"GET / HTTP/1.1\r\nbig: " + b"x" * 1_000_000, 431, "headers_too_large"),
        (b"GET / HTTP/1.1\r\n" + b"x" * 1_000_000, 431, "headers_too_large"),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 500_000, 431, "headers_too_large"),
        (b"GET /" + b"x" * 8190 + b" HTTP/1.1\r\n\r\n", 431, "headers_too_large"),
        (b"nonsense\r\n\r\n", 400, None),
        (b"\x16\x03\x01\x02\x00\x01\x00", 400, None),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, None),
        (b"GET / HTTP/1.1\r\nbad header\r\n\r\n", 400, None),
        (b"GET / HTTP/1.1\r\na\x00b: c\r\n\r\n", 400, None),
        (b"POST /size HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400, None),
        (b"POST /size HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nhello", 400, None),
        (b"POST /size HTTP/1.1\r\nContent-Length: -5\r\n\r\n", 400, None),
    ],
    ids=range(14),
)
def test_what_is_refused(server: Served, sent: bytes, status: int, code: str | None) -> None:
    assert refusal(send_until_refused(server, sent), status)["code"] == code
    assert_alive(server)


def send_until_refused(server: Served, sent: bytes) -> bytes:
    """Writes for as long as the server reads, as a client that floods does."""
    with server.connect() as connection:
        try:
            for start in range(0, len(sent), 4096):
                connection.sendall(sent[start : start + 4096])
                if start == 4096 * 4:
                    break  # more would only be met by a closed connection, which may lose the answer on its way
        except (BrokenPipeError, ConnectionResetError):
            pass
        return read_all(connection)


def test_a_long_address_is_refused_by_name() -> None:
    drain = Drain()
    with served(application(drain=drain), drain) as server:
        answer = server.exchange(b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        assert refusal(answer, 414)["code"] == "uri_too_long"


def test_headers_just_within_the_bound_pass(server: Served) -> None:
    filling = b"x" * (8 * 1024 - 100)
    answer = server.exchange(b"GET /health HTTP/1.1\r\nHost: x\r\n" + CLOSE + b"big: " + filling + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")


def test_the_bound_holds_for_later_requests_of_a_connection(server: Served) -> None:
    with server.connect() as connection:
        for _ in range(3):
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert connection.recv(65536).endswith(b"ok")
        connection.sendall(b"GET /health HTTP/1.1\r\n")
        connection.sendall(b"big: " + b"x" * 10_000)
        refusal(read_all(connection), 431)


def test_bodies_are_larger_than_headers_may_be(server: Served) -> None:
    body = b"x" * 300_000
    head = b"POST /size HTTP/1.1\r\nHost: x\r\n" + CLOSE + b"Content-Length: %d\r\n\r\n" % len(body)
    assert server.exchange(head + body).endswith(b"300000")


def test_chunks_and_trailers(server: Served) -> None:
    head = b"POST /size HTTP/1.1\r\nHost: x\r\n" + CLOSE + b"Transfer-Encoding: chunked\r\n\r\n"
    chunks = b"".join(b"%x\r\n%s\r\n" % (20_000, b"x" * 20_000) for _ in range(5))
    assert server.exchange(head + chunks + b"0\r\nsum: 1\r\n\r\n").endswith(b"100000")


def test_a_trailer_without_an_end_is_refused(server: Served) -> None:
    """Even when the answer is out already: the route below does not read its body."""
    head = b"POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    with server.connect() as connection:
        connection.sendall(head + b"1\r\nx\r\n0\r\nendless: ")
        answer = connection.recv(65536)
        for _ in range(5):
            connection.sendall(b"x" * 4000)
        answer += read_all(connection)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"HTTP/1.1 431" in answer


def test_pipelined_requests_are_answered_in_order(server: Served) -> None:
    one = b"GET /health HTTP/1.1\r\nHost: x\r\nx-request-id: %d\r\n%s\r\n"
    answer = server.exchange(b"".join(one % (i, CLOSE if i == 4 else b"") for i in range(5)))
    assert [answer.find(b"x-request-id: %d" % i) for i in range(5)] == sorted(
        answer.find(b"x-request-id: %d" % i) for i in range(5)
    )
    assert answer.count(b"HTTP/1.1 200") == 5


@pytest.fixture(scope="module")
def hasty() -> Iterator[Served]:
    drain = Drain()
    with served(application(drain=drain), drain, header_seconds=0.2) as running:
        yield running


def test_slow_headers_are_given_up(hasty: Served) -> None:
    assert refusal(hasty.exchange(b"GET / HTTP/1.1\r\nHost: x\r\na:"), 408)["code"] == "request_timeout"


def test_dribbled_headers_are_given_up_too(hasty: Served) -> None:
    """Each byte comes in time, and they are late all the same."""
    with hasty.connect() as connection:
        connection.settimeout(0.02)
        connection.sendall(b"GET / HTTP/1.1\r\n")
        answer = b""
        for _ in range(int(PATIENCE / 0.02)):
            try:
                piece = connection.recv(65536)
            except TimeoutError:
                connection.sendall(b"a")
                continue
            answer += piece
            if not piece:
                break
    refusal(answer, 408)


def test_a_connection_that_says_nothing_is_closed(hasty: Served) -> None:
    with hasty.connect() as connection:
        assert read_all(connection) == b""


def test_a_quick_request_on_an_old_connection_is_answered(hasty: Served) -> None:
    """Idle time between requests counts for keep-alive, not for headers."""
    with hasty.connect() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(65536).endswith(b"ok")
        assert read_nothing(connection, 0.5)
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(65536).endswith(b"ok")


def read_nothing(connection: socket.socket, seconds: float) -> bool:
    return select.select([connection], [], [], seconds)[0] == []


def test_more_connections_than_allowed_are_told_to_come_back() -> None:
    drain = Drain()
    with served(application(drain=drain), drain, max_connections=2) as server:
        with server.connect() as one, server.connect() as two:
            for connection in (one, two):
                connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                assert connection.recv(65536).endswith(b"ok")
            with server.connect() as three:
                answer = read_all(three)
            assert refusal(answer, 503)["code"] == "service_unavailable"
            assert b"retry-after: 1" in answer
            one.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert one.recv(65536).endswith(b"ok")
        assert_alive_soon(server)


def assert_alive_soon(server: Served) -> None:
    """The server notices closed connections when its loop comes round to them."""
    for _ in range(1000):
        answer = server.exchange(b"GET /health HTTP/1.1\r\nHost: x\r\n" + CLOSE + b"\r\n")
        if answer.endswith(b"ok"):
            return
    pytest.fail("no connection was ever free again")
