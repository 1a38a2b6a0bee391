"""What passes the wire arrives as it was sent, and the moments of requests for text are kept."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

from benchmarks.loadgen_agreement.quantities import MissingAnswers
from benchmarks.loadgen_agreement.wire import Connection, Wire, wire_to

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
EMPTY = b'data: {"choices": [{"text": ""}]}\n\n'
USAGE = b'data: {"choices": [], "usage": {"completion_tokens": 2}}\n\n'
DONE = b"data: [DONE]\n\n"


def piece(text: bytes) -> bytes:
    return b'22\r\ndata: {"choices": [{"text": "' + text + b'"}]}\n\n\r\n'


def test_pieces_with_text_are_the_moments_of_an_answer() -> None:
    wire = Wire(0)
    connection = Connection(wire)
    connection.asked(b"POST /v1/completions HTTP/1.1\r\n", 1.0)
    connection.asked(b'{"prompt": "POST "}', 1.1)
    for data, now in ((HEAD, 1.2), (piece(b"a")[:20], 1.4), (piece(b"a")[20:], 1.5), (EMPTY, 1.6)):
        connection.answered(data, now)
    connection.answered(piece(b"b") + USAGE, 2.5)
    connection.answered(DONE, 2.6)
    found = wire.take(requests=1, tokens=2)
    assert (found.first_token, found.last_token, found.per_token) == pytest.approx((0.5, 1.5, 1.0))
    assert found.requests == pytest.approx(1 / 1.6)
    assert wire.exchanges == []


def test_what_asks_for_no_text_does_not_count() -> None:
    wire = Wire(0)
    connection = Connection(wire)
    connection.asked(b"GET /v1/models HTTP/1.1\r\n\r\n", 1.0)
    connection.answered(HEAD + b'{"data": []}', 1.1)
    assert wire.exchanges == []


def test_an_answer_that_did_not_end_is_missing() -> None:
    wire = Wire(0)
    connection = Connection(wire)
    connection.asked(b"POST /v1/completions HTTP/1.1\r\n\r\n", 1.0)
    connection.answered(HEAD + piece(b"a"), 1.1)
    with pytest.raises(MissingAnswers, match="0 whole answers of 1 passed the wire"):
        wire.take(requests=1, tokens=1)


@contextmanager
def answering(answer: bytes, asked: list[bytes]) -> Iterator[int]:
    """The port of a server that says the same to everything, `asked` what it was asked."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with listening.accept()[0] as connection:
                while data := connection.recv(1 << 16):
                    asked.append(data)
                    connection.sendall(answer)

        server = Thread(target=serve)
        server.start()
        yield listening.getsockname()[1]
        server.join()


def test_everything_is_passed_on_both_ways() -> None:
    asked: list[bytes] = []
    answer, question = HEAD + piece(b"a") + piece(b"b") + DONE, b"POST / HTTP/1.1\r\n\r\n"
    with answering(answer, asked) as port, wire_to(port) as wire:
        with socket.create_connection(("127.0.0.1", wire.port)) as client:
            for _ in range(3):
                client.sendall(question)
                received = b""
                while len(received) < len(answer):
                    received += client.recv(1 << 16)
                assert received == answer
        found = wire.take(requests=3, tokens=2)
    assert b"".join(asked) == question * 3
    assert 0 < found.first_token <= found.last_token


def test_a_wire_that_is_still_in_use_can_be_ended() -> None:
    asked: list[bytes] = []
    with answering(HEAD, asked) as port:
        with wire_to(port) as wire:
            client = socket.create_connection(("127.0.0.1", wire.port))
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert client.recv(1 << 16) == HEAD
        with client:
            assert client.recv(1) == b""
