"""Replica: the front's end of one engine process. Starts it, talks to it, and notices when it is gone or stuck."""

import asyncio
import logging
import os
import signal
import struct
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import zmq
import zmq.asyncio

from quire.core.stats import EngineStats
from quire.serving.liveness import Liveness
from quire.serving.messages import (
    ChildSettings,
    Close,
    FromEngine,
    Report,
    Started,
    StartFailed,
    ToEngine,
    decode_from_engine,
    encode,
)

_LENGTH = struct.Struct("<I")
_CHILD = "quire.serving.child"
_LOOK_EVERY = 0.5
"""Seconds between looks at whether an engine is stuck."""
_STACK_SECONDS = 1.0
"""What a stuck engine gets to write its stack before it is killed."""
_CLOSE_SECONDS = 5.0
_log = logging.getLogger(__name__)


class Replica:
    """One engine process, from start to end. A lost one is followed by a new object, with new sockets."""

    def __init__(
        self,
        settings: ChildSettings,
        context: zmq.asyncio.Context,
        *,
        step_timeout: float,
        environment: dict[str, str],
        on_message: Callable[["Replica", FromEngine], None],
        on_lost: Callable[["Replica", str], None],
    ) -> None:
        self.number = settings.replica
        self.started: Started | None = None
        """None until it takes requests."""
        self.stats = EngineStats()
        self.start_failure: str | None = None
        """Why it will never start with these settings."""
        self._settings = settings
        self._step_timeout = step_timeout
        self._environment = environment
        self._on_message = on_message
        self._on_lost = on_lost
        self._inbox = context.socket(zmq.PULL)
        self._inbox.bind(settings.outbox)
        self._outbox: zmq.SyncSocket = zmq.Context.shadow(context.underlying).socket(zmq.PUSH)
        # it connects before the engine listens, and keeps what is sent until then; admission bounds how much that is
        self._outbox.setsockopt(zmq.SNDHWM, 0)
        self._outbox.connect(settings.inbox)
        self._process: Process | None = None
        self._heard = time.monotonic()
        self._ready_since: float | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False

    @property
    def pid(self) -> int:
        return 0 if self._process is None else self._process.pid

    @property
    def is_ready(self) -> bool:
        return self.started is not None

    @property
    def seconds_ready(self) -> float:
        """How long it has been ready; 0 while it is not."""
        return 0.0 if self._ready_since is None else time.monotonic() - self._ready_since

    @property
    def seconds_silent(self) -> float:
        return time.monotonic() - self._heard

    async def start(self) -> None:
        """Start the process; it says `Started` when it is ready."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", _CHILD, stdin=asyncio.subprocess.PIPE, env=os.environ | self._environment
        )
        assert self._process.stdin is not None
        frame = msgspec.msgpack.encode(self._settings)
        with suppress(ConnectionError):  # it died at once; that is noticed below
            self._process.stdin.write(_LENGTH.pack(len(frame)) + frame)
            await self._process.stdin.drain()
        self._tasks = [asyncio.create_task(work) for work in (self._listen(), self._watch(), self._look())]

    def send(self, message: ToEngine) -> None:
        """Never waits: an engine that reads nothing is noticed by its silence."""
        if not self._outbox.closed:  # it is lost, and what it had is on its way elsewhere
            self._outbox.send(encode(message), zmq.NOBLOCK)

    async def close(self) -> None:
        """End the process: first by asking, then by force."""
        self._closing = True
        self.send(Close())
        if self._process is not None and self._process.returncode is None:
            try:
                await asyncio.wait_for(self._process.wait(), _CLOSE_SECONDS if self.is_ready else 0.1)
            except TimeoutError:
                self.kill()
                await self._process.wait()
        self._end()

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def _listen(self) -> None:
        while True:
            message = decode_from_engine(await self._inbox.recv())
            self._heard = time.monotonic()
            if isinstance(message, Report):
                self.stats = message.stats
            elif isinstance(message, Started):
                self.started, self._ready_since = message, self._heard
            elif isinstance(message, StartFailed):
                self.start_failure = message.message
            self._on_message(self, message)

    async def _watch(self) -> None:
        """The process is gone: everything it had said before is read first, then it counts as lost."""
        assert self._process is not None
        code = await self._process.wait()
        if self._closing:
            return
        while await self._inbox.poll(50):
            await asyncio.sleep(0.01)
        self._end()
        self._on_lost(self, _cause(code))

    async def _look(self) -> None:
        """Health is progress: an engine that neither steps nor says that it is idle is replaced."""
        assert self._process is not None
        signs, heard = Liveness(self._process.pid), 0.0
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            if heard != self._heard:
                heard = self._heard
                signs.heard()
            if self.is_ready and (self.seconds_silent > self._step_timeout or signs.is_lifeless()):
                _log.error(
                    "engine %d has been silent for %.0f s; its stack follows, then it is replaced",
                    self.number,
                    self.seconds_silent,
                )
                with suppress(ProcessLookupError):
                    self._process.send_signal(signal.SIGUSR1)
                await asyncio.sleep(_STACK_SECONDS)
                self.kill()
                return

    def _end(self) -> None:
        current = asyncio.current_task()
        for task in self._tasks:
            if task is not current:
                task.cancel()
        self._inbox.close(linger=0)
        self._outbox.close(linger=0)
        for address in (self._settings.inbox, self._settings.outbox):
            Path(address.removeprefix("ipc://")).unlink(missing_ok=True)


def _cause(code: int) -> str:
    if code < 0:
        with suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}"
    return f"exit status {code}"
