"""Listening: runs the application under uvicorn until a signal, lets what runs come to its end, and leaves.

The first SIGTERM or SIGINT drains: new work is refused, running work is finished. The second ends everything at once.
SIGHUP reads the keys again. The caller brings the event loop, for which uvloop's is the fastest.
"""

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

from quire.config.listening import ListenConfig
from quire.server.drain import Drain
from quire.server.listen.address import allow_open_files
from quire.server.listen.http_protocol import BoundedProtocol, ProtocolCaps
from quire.serving.tls import tls_context

_log = logging.getLogger(__name__)

DRAINED = 0
CUT_OFF = 1
"""Exit codes: all work was finished, or some was not."""

_LAST_WORDS = 1.0
"""Seconds for requests to notice that their connections are gone."""
_MEBIBYTE = 2**20


class Listener:
    """One server from its first connection to its last."""

    def __init__(
        self,
        app: ASGIApp,
        config: ListenConfig,
        drain: Drain,
        *,
        on_reload: Callable[[], object] | None = None,
        count_connections: Callable[[int], int] | None = None,
        header_seconds: float = 20.0,
        takes_signals: bool = True,
    ) -> None:
        """`on_reload` is called on SIGHUP. `count_connections` is told how many connections are open here, and says how
        many the server has. Without `takes_signals` only `stop` ends it."""
        self._takes_signals = takes_signals
        self._config = config
        self._drain = drain
        self._on_reload = on_reload
        self._server = _Server(_uvicorn_config(app, config, header_seconds, count_connections))
        self._asked = asyncio.Event()
        self._aborted = asyncio.Event()

    def stop(self) -> None:
        """What SIGTERM does: the first time drain, the second time end at once."""
        if not self._asked.is_set():
            self._drain.begin()
            self._asked.set()
            _log.info("draining: %d requests are running; a second signal ends them", self._drain.running)
        elif not self._aborted.is_set():
            _log.warning("ending at once: %d requests are cut off", self._drain.running)
            self._aborted.set()

    async def run(self, listening: socket.socket) -> int:
        """Serve on a bound socket until stopped; returns an exit code."""
        serving = asyncio.create_task(self._server.serve([listening]))
        with self._signals():
            try:
                await _first(serving, self._asked.wait())
                code = DRAINED if serving.done() else await self._drained(serving)
            except asyncio.CancelledError:
                await self._leave(serving, now=True)
                raise
            await serving  # raises what it died of
            return code

    async def _drained(self, serving: "asyncio.Task[None]") -> int:
        """See running work through, then leave. Whatever the drain runs into, the server does end."""
        work = asyncio.create_task(self._drain.quiet())
        timeout = self._config.drain_timeout
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await _first(work, self._aborted.wait())
        finished, aborted = self._drain.running == 0, self._aborted.is_set()
        if not finished and not aborted:
            _log.warning("%d requests took longer than --drain-timeout %s s", self._drain.running, timeout)
        work.cancel()
        await self._leave(serving, now=not finished)
        return CUT_OFF if aborted and not finished else DRAINED  # who sets a limit wants it kept

    async def _leave(self, serving: "asyncio.Task[None]", *, now: bool) -> None:
        """Close what is open; `now` does not wait for answers to be sent."""
        if not now:
            self._server.should_exit = True
            with suppress(TimeoutError):  # answers are complete, but someone may never read the last of one
                async with asyncio.timeout(self._config.slow_reader_timeout):
                    await _first(serving, self._aborted.wait())
        if serving.done():
            return
        self._server.should_exit = self._server.force_exit = True
        # A closed connection is what requests are made to notice; being cancelled is not.
        for connection in list(self._server.server_state.connections):
            cast(Any, connection).transport.abort()
        tasks = list(self._server.server_state.tasks)
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=_LAST_WORDS)
            for task in left:
                task.cancel()
        await asyncio.wait([serving])

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Handlers for the time of the server; only a process's main thread can have any."""
        if not self._takes_signals or threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        handlers: dict[signal.Signals, Callable[[], object]] = {signal.SIGTERM: self.stop, signal.SIGINT: self.stop}
        if self._on_reload is not None:
            handlers[signal.SIGHUP] = self._on_reload
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers, which raise a signal again once the server has ended."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _uvicorn_config(
    app: ASGIApp, config: ListenConfig, header_seconds: float, count_connections: Callable[[int], int] | None
) -> uvicorn.Config:
    caps = ProtocolCaps(
        header_bytes=int(config.max_header_kb * 1024),
        header_seconds=header_seconds,
        connections=allow_open_files(config.max_connections),
    )
    context = tls_context(config)
    if context is not None:
        context.set_alpn_protocols(["http/1.1"])
    return uvicorn.Config(
        app,
        http=cast(Any, partial(BoundedProtocol, caps=caps, count=count_connections)),
        ws="websockets-sansio",
        ws_max_size=int(config.max_body_mb * _MEBIBYTE),
        ws_per_message_deflate=False,  # deltas are too small to gain by it, and inflating can be made costly
        timeout_keep_alive=cast(int, config.keep_alive),  # any number of seconds
        ssl_context_factory=None if context is None else lambda *_: context,
        proxy_headers=False,
        server_header=False,
        access_log=False,  # the envelope logs requests, with their ids
        log_config=None,
        log_level="error",  # below that uvicorn tells of every malformed request
        interface="asgi3",
        lifespan="off",  # whoever calls this starts and ends what the routes use
    )


async def _first(task: "asyncio.Task[Any]", other: "Any") -> None:
    """Wait for either; what is still running of `other` is dropped."""
    waiting = asyncio.ensure_future(other)
    try:
        await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
