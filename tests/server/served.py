"""A real server on a real socket, in a thread of this process."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import uvloop
from starlette.types import ASGIApp

from quire.config.server import ServerConfig
from quire.server.drain import Drain
from quire.server.listen.address import bind, url_of
from quire.server.listen.listen import Listener

PATIENCE = 30.0
"""Seconds to wait for what should have come; only a failure ever waits so long."""


@dataclass
class Served:
    """The server and what was asked of it."""

    url: str
    port: int
    drain: Drain
    loop: asyncio.AbstractEventLoop
    listener: Listener
    thread: threading.Thread
    codes: list[int] = field(default_factory=list)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.listener.stop)

    def finished(self) -> int:
        """The exit code, once the server has ended."""
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()
        return self.codes[0]

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def exchange(self, sent: bytes) -> bytes:
        """All that comes back until the server closes the connection."""
        with self.connect() as connection:
            connection.sendall(sent)
            return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    received = b""
    try:
        while piece := connection.recv(65536):
            received += piece
    except ConnectionResetError:
        pass
    return received


@contextmanager
def served(app: ASGIApp, drain: Drain, *, header_seconds: float = 20.0, **settings: object) -> Iterator[Served]:
    """Serve until the block ends."""
    config = ServerConfig(port=0, **settings)  # type: ignore[arg-type]
    listening = bind(config)
    ready = threading.Event()
    made: list[Served] = []

    async def main() -> int:
        listener = Listener(app, config, drain, header_seconds=header_seconds)
        loop, thread = asyncio.get_running_loop(), threading.current_thread()
        port = listening.getsockname()[1] if listening.family == socket.AF_INET else 0
        made.append(Served(url_of(listening, config), port, drain, loop, listener, thread))
        ready.set()
        return await listener.run(listening)

    def run() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            code = runner.run(main())
        made[0].codes.append(code)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(PATIENCE)
    try:
        yield made[0]
    finally:
        if thread.is_alive():
            made[0].stop()
            made[0].stop()
            thread.join(PATIENCE)
        assert not thread.is_alive()
