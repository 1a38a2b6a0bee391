"""ProcessClient: an engine in a process of its own: starts it, talks to it, and notices when it is gone or stuck."""

import asyncio
import logging
import os
import signal
import struct
import sys
from asyncio.subprocess import Process
from contextlib import suppress
from pathlib import Path

import msgspec
import zmq
import zmq.asyncio

from quire.serving.client import EngineClient, OnMessage
from quire.serving.liveness import Liveness
from quire.serving.messages import ChildSettings, Close, ToEngine, decode_from_engine, encode

_LENGTH = struct.Struct("<I")
_CHILD = "quire.serving.child"
_LOOK_EVERY = 0.5
"""Seconds between looks at whether an engine is stuck."""
_STACK_SECONDS = 1.0
"""What a stuck engine gets to write its stack before it is killed."""
_CLOSE_SECONDS = 5.0
_log = logging.getLogger(__name__)


class ProcessClient(EngineClient):
    """An engine in a child process of this one, behind two unix sockets."""

    def __init__(
        self,
        settings: ChildSettings,
        context: zmq.asyncio.Context,
        on_message: OnMessage,
        *,
        step_timeout: float,
        environment: dict[str, str],
    ) -> None:
        """`environment` is added to this process's own."""
        super().__init__(settings.replica, on_message)
        self._settings = settings
        self._step_timeout = step_timeout
        self._environment = environment
        # whoever cleans up temporary files may have taken the sockets' folder
        Path(settings.inbox.removeprefix("ipc://")).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._inbox = context.socket(zmq.PULL)
        self._inbox.bind(settings.outbox)
        self._outbox: zmq.SyncSocket = zmq.Context.shadow(context.underlying).socket(zmq.PUSH)
        # it connects before the engine listens, and keeps what is sent until then; admission bounds how much that is
        self._outbox.setsockopt(zmq.SNDHWM, 0)
        self._outbox.connect(settings.inbox)
        self._process: Process | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def pid(self) -> int:
        return 0 if self._process is None else self._process.pid

    async def start(self) -> None:
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
        if not self._outbox.closed:  # one that reads nothing is noticed by its silence
            self._outbox.send(encode(message), zmq.NOBLOCK)

    async def close(self) -> None:
        """End the process: first by asking, then by force."""
        patience = _CLOSE_SECONDS if self.is_ready else 0.1
        self.send(Close())
        process = self._process
        if process is not None and process.returncode is None:
            try:
                await asyncio.wait_for(process.wait(), patience)
            except TimeoutError:
                self._kill()
                await process.wait()
        self._end("it was closed")

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def _listen(self) -> None:
        while True:
            self._received(decode_from_engine(await self._inbox.recv()))

    async def _watch(self) -> None:
        """The process is gone: everything it had said before is read first, then it counts as lost."""
        assert self._process is not None
        code = await self._process.wait()
        while not self._inbox.closed and await self._inbox.poll(50):
            await asyncio.sleep(0.01)
        self._end(_cause(code))

    async def _look(self) -> None:
        """Health is progress: an engine that neither steps nor says that it is idle is replaced."""
        assert self._process is not None
        liveness, heard = Liveness(self._process.pid), 0.0
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            if heard != self._heard:
                heard = self._heard
                liveness.heard()
            is_late = self.is_ready and self.seconds_silent > self._step_timeout
            if is_late or liveness.is_lifeless(is_starting=not self.is_ready):
                _log.error(
                    "engine %d has been silent for %.0f s; its stack follows, then it is replaced",
                    self.number,
                    self.seconds_silent,
                )
                with suppress(ProcessLookupError):
                    self._process.send_signal(signal.SIGUSR1)
                await asyncio.sleep(_STACK_SECONDS)
                self._kill()
                return

    def _end(self, cause: str) -> None:
        current = asyncio.current_task()
        for task in self._tasks:
            if task is not current:
                task.cancel()
        self._inbox.close(linger=0)
        self._outbox.close(linger=0)
        for address in (self._settings.inbox, self._settings.outbox):
            with suppress(OSError):
                Path(address.removeprefix("ipc://")).unlink(missing_ok=True)
        self._gone(cause)


def _cause(code: int) -> str:
    if code < 0:
        with suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}"
    return f"exit status {code}"
