"""The door of the first rank: who comes in, and who does not."""

import socket
from contextlib import suppress

import pytest

from quire.core.errors import ConfigError
from quire.core.shared_secret import SecretRefused
from quire.executor.rank_door import RankDoor, knock
from quire.executor.rank_messages import Hello

SECRET = b"a secret of ranks"


def hello(node: int, local: int) -> Hello:
    return Hello(node, local, "host", 7, "127.0.0.1")


def nobody_is_missing(missing: list[tuple[int, int]]) -> None:
    raise AssertionError(missing)


def test_visitors_come_in_the_order_of_their_ranks() -> None:
    door = RankDoor("127.0.0.1", 0, SECRET)
    sent = [knock(door.host, door.port, SECRET, lambda _, each=each: hello(*each)) for each in ((2, 0), (1, 1), (1, 0))]
    visitors = door.wait_for({(1, 0), (1, 1), (2, 0)}, 10, nobody_is_missing)
    assert [(each.hello.node, each.hello.local_rank) for each in visitors] == [(1, 0), (1, 1), (2, 0)]
    visitors[0].connection.sendall(b"x")
    assert sent[2].recv(1) == b"x"
    for each in (*sent, *(visitor.connection for visitor in visitors)):
        each.close()
    door.close()


def test_strangers_and_nonsense_are_turned_away() -> None:
    door = RankDoor("127.0.0.1", 0, SECRET)
    with pytest.raises(SecretRefused):
        knock(door.host, door.port, b"another secret...", lambda _: hello(1, 0))
    with socket.create_connection((door.host, door.port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(64))
        stranger.settimeout(10)
        with suppress(ConnectionResetError):
            while stranger.recv(1024):
                pass
    missing: list[list[tuple[int, int]]] = []
    with pytest.raises(TimeoutError):
        door.wait_for({(1, 0)}, 0.0, missing.append)
    assert missing == [[(1, 0)]]
    door.close()


def test_a_rank_that_was_started_again_takes_its_own_place() -> None:
    door = RankDoor("127.0.0.1", 0, SECRET)
    first = knock(door.host, door.port, SECRET, lambda _: hello(1, 0))

    def until_it_is_in(missing: list[tuple[int, int]]) -> None:
        if missing == [(9, 9)]:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        door.wait_for({(1, 0), (9, 9)}, 60, until_it_is_in)
    second = knock(door.host, door.port, SECRET, lambda _: hello(1, 0))
    first.settimeout(10)
    assert first.recv(1) == b""
    [visitor] = door.wait_for({(1, 0)}, 10, nobody_is_missing)
    visitor.connection.sendall(b"y")
    assert second.recv(1) == b"y"
    for each in (first, second, visitor.connection):
        each.close()
    door.close()


def test_whoever_is_not_an_engine_is_not_trusted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        other = socket.create_connection(server.getsockname())
        served, _ = server.accept()
        served.close()
        other.close()
        port = server.getsockname()[1]

    with pytest.raises(OSError, match=r".+"):
        knock("127.0.0.1", port, SECRET, lambda _: hello(1, 0))


def test_an_address_of_another_host_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"cannot listen .* at 192\.0\.2\.77 port 0: .*--master-addr"):
        RankDoor("192.0.2.77", 0, SECRET)
