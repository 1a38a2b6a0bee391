"""The door of a model's first rank: where ranks of other hosts come in, and how they knock.

Both sides prove that they know the shared secret before anything else is read, and then speak typed msgpack. Networks
where others can listen or interfere are not for ranks: what gloo and NCCL send is neither secret nor signed.
"""

import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import BoundedSemaphore, Condition, Thread
from time import monotonic

import msgspec

from quire.core.errors import ConfigError
from quire.core.shared_secret import SecretRefused, prove_to_called, prove_to_caller
from quire.executor.rank_messages import Hello, decode_hello, frame, receive

_GREETING = b"quire-rank-1\n"
_CALLER, _CALLED = b"rank", b"first rank"
_HANDSHAKE_SECONDS = 10.0
_MOST_AT_ONCE = 64
"""Callers that may be proving themselves; more are turned away."""
_LOOK_SECONDS = 1.0
_KEEP_ALIVE = (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
"""A host that is away is noticed after some 20 seconds."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Visitor:
    """A rank that has come in."""

    hello: Hello
    connection: socket.socket


class RankDoor:
    """Open from the moment it is made until it is closed, at one address."""

    def __init__(self, host: str, port: int, secret: bytes) -> None:
        """Port 0 picks a free one."""
        try:
            self._listener = socket.create_server((host, port), family=_family(host))
        except OSError as error:
            raise ConfigError(
                f"cannot listen for workers of other hosts at {host} port {port}: {error.strerror or error}; give an "
                "address of this host as --master-addr, and a free --master-port."
            ) from None
        self.host = host
        self.port: int = self._listener.getsockname()[1]
        self._secret = secret
        self._visitors: dict[tuple[int, int], Visitor] = {}
        self._changed = Condition()
        self._room = BoundedSemaphore(_MOST_AT_ONCE)
        self._is_closed = False
        Thread(target=self._open, name="quire-rank-door", daemon=True).start()

    def wait_for(
        self, expected: set[tuple[int, int]], patience: float, waiting: Callable[[list[tuple[int, int]]], None]
    ) -> list[Visitor]:
        """Those of `expected` (host and number there), in order, when all have come.

        `waiting` is called every second with those that have not, and may raise; TimeoutError after so many seconds.
        """
        end = monotonic() + patience
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: expected <= self._visitors.keys(), _LOOK_SECONDS):
                    return [self._visitors.pop(each) for each in sorted(expected)]
                missing = sorted(expected - self._visitors.keys())
            waiting(missing)
            if monotonic() > end:
                raise TimeoutError

    def close(self) -> None:
        """Whoever came in and was not waited for is sent away."""
        self._is_closed = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._changed:
            for visitor in self._visitors.values():
                visitor.connection.close()
            self._visitors.clear()

    def _open(self) -> None:
        while True:
            try:
                connection, peer = self._listener.accept()
            except OSError:
                return
            if not self._room.acquire(blocking=False):
                connection.close()
                continue
            Thread(target=self._let_in, args=(connection, peer), name="quire-rank-knock", daemon=True).start()

    def _let_in(self, connection: socket.socket, peer: object) -> None:
        try:
            connection.settimeout(_HANDSHAKE_SECONDS)
            prove_to_caller(connection, _GREETING, self._secret, _CALLER, _CALLED)
            data = receive(connection)
            if data is None:
                raise EOFError
            hello = decode_hello(data)
        except (SecretRefused, EOFError, OSError, msgspec.MsgspecError) as error:
            connection.close()
            _log.warning("a caller from %s was turned away: %s", peer, error or "it hung up")
            return
        finally:
            self._room.release()
        connection.settimeout(None)
        _watch_host(connection)
        with self._changed:
            if self._is_closed:
                connection.close()
                return
            before = self._visitors.pop((hello.node, hello.local_rank), None)
            if before is not None:  # it was started again before all had come
                before.connection.close()
            self._visitors[hello.node, hello.local_rank] = Visitor(hello, connection)
            self._changed.notify_all()


def knock(host: str, port: int, secret: bytes, hello: Callable[[str], Hello]) -> socket.socket:
    """Go in as the rank that `hello` makes for one's own address; raises OSError while nobody is there, and
    SecretRefused where one is not welcome."""
    connection = socket.create_connection((host, port), _HANDSHAKE_SECONDS)
    try:
        prove_to_called(connection, _GREETING, secret, _CALLER, _CALLED)
        connection.sendall(frame(hello(connection.getsockname()[0])))
    except EOFError:
        connection.close()
        raise SecretRefused("it closed the connection; is its secret another one?") from None
    except BaseException:
        connection.close()
        raise
    connection.settimeout(None)
    _watch_host(connection)
    return connection


def _watch_host(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE:
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
