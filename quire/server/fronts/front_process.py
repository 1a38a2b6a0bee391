"""FrontProcess: a front as the hub sees it: starts it, hears it, and notices when it is gone or stuck."""

import asyncio
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from types import NoneType

import msgspec

from quire.core.errors import Unavailable
from quire.server.fronts.peer import Handler, Peer
from quire.server.fronts.pulse import Pulse
from quire.server.fronts.seat import FrontSettings
from quire.server.overview import Overview
from quire.serving.child_process import ChildProcess, exit_cause
from quire.serving.link import Link
from quire.serving.supervised import Supervised

_CHILD = "quire.server.fronts.child"
_CLOSE_SECONDS = 5.0
_BEAT = 1.0
"""Seconds between two looks at what it has counted."""


class FrontProcess(Supervised):
    """One front from its start to its end."""

    def __init__(
        self,
        settings: FrontSettings,
        handlers: dict[str, Handler],
        step_timeout: float,
        on_ready: Callable[["FrontProcess"], None],
    ) -> None:
        """`handlers` answer what the front asks; `on_ready` is told when it serves. The link of `settings` is chosen
        here."""
        super().__init__(settings.number)
        self._settings = settings
        self._handlers = handlers
        self._step_timeout = step_timeout
        self._on_ready = on_ready
        self._process = ChildProcess()
        self._tasks: list[asyncio.Task[None]] = []
        self.code: int | None = None
        """Its exit status, once it has ended."""
        self.serving = asyncio.Event()
        """Set once it takes connections."""
        self.peer: Peer | None = None
        self.pulse = Pulse()
        """What it told when it was last asked."""

    @property
    def pid(self) -> int:
        return self._process.pid

    async def start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            settings = msgspec.structs.replace(self._settings, link=theirs.fileno())
            files = (settings.listening, settings.link)
            # what a front that is killed leaves behind goes with the hub's folder
            await self._process.start(_CHILD, settings, {"TMPDIR": settings.folder}, files)
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        self.peer = Peer(Link(reader, writer))
        self.peer.handlers.update(self._handlers, serves=self._serves, failed=self._failed)
        watched = self._process.kill_when_stuck(f"front {self.number}", self, self._step_timeout)
        works = (self.peer.run(), self._watch(), self._beat(self.peer), watched)
        self._tasks = [asyncio.create_task(work) for work in works]

    async def overview(self, tenant: str | None) -> Overview:
        """What it tells now; what it last counted where it does not answer in time."""
        if self.peer is not None and self.is_ready:
            with suppress(Unavailable, TimeoutError):
                async with asyncio.timeout(_BEAT):
                    return await self.peer.ask("overview", Overview, tenant)
        return Overview(self.pulse.figures)

    def tell(self, order: str, given: object = None) -> None:
        """An order; one that is gone does not hear it."""
        if self.peer is not None:
            self.peer.tell(order, given)

    async def ask(self, order: str, given: object) -> None:
        """An order, until it is carried out; one that is gone has nothing to carry out."""
        if self.peer is not None:
            with suppress(Unavailable):
                await self.peer.ask(order, NoneType, given)

    async def close(self) -> None:
        """End it now: what it still does is cut off."""
        self._process.kill()
        await self._process.end(_CLOSE_SECONDS)
        self._end("it was closed")

    async def _serves(self, _: msgspec.Raw) -> None:
        self._became_ready()
        self.serving.set()
        self._on_ready(self)

    async def _failed(self, given: msgspec.Raw) -> None:
        self.start_failure = msgspec.msgpack.decode(given, type=str)
        self._process.kill()

    async def _beat(self, peer: Peer) -> None:
        """Its event loop answers: that is what a front's health is. And what it has counted outlives it."""
        await self.serving.wait()
        while True:
            await asyncio.sleep(_BEAT)
            with suppress(Unavailable):  # it dies
                self.pulse = await peer.ask("pulse", Pulse)
                self.heard = time.monotonic()

    async def _watch(self) -> None:
        self.code = await self._process.exited()
        self._end(exit_cause(self.code))

    def _end(self, cause: str) -> None:
        current = asyncio.current_task()
        for task in self._tasks:
            if task is not current:
                task.cancel()
        if self.peer is not None:
            self.peer.close()
        self._gone(cause)
