"""ProcessClient: an engine in a process of its own: starts it, talks to it, and notices when it is gone or stuck."""

import asyncio
import logging
from contextlib import suppress
from pathlib import Path

import zmq
import zmq.asyncio

from quire.serving.child_process import ENGINE, ChildProcess, exit_cause
from quire.serving.client import EngineClient, OnMessage
from quire.serving.messages import ChildSettings, Close, Lost, ToEngine, decode_from_engine, encode

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
        process: ChildProcess,
        step_timeout: float,
        environment: dict[str, str],
    ) -> None:
        """`process` may have begun; `environment` is added to this process's own."""
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
        self._process = process
        self._last_word: str | None = None
        """What it said it would die of."""
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def pid(self) -> int:
        return self._process.pid

    async def start(self) -> None:
        await self._process.start(ENGINE, self._settings, self._environment)
        watched = self._process.kill_when_stuck(f"engine {self.number}", self, self._step_timeout)
        self._tasks = [asyncio.create_task(work) for work in (self._listen(), self._watch(), watched)]

    def send(self, message: ToEngine) -> None:
        if not self._outbox.closed:  # one that reads nothing is noticed by its silence
            self._outbox.send(encode(message), zmq.NOBLOCK)

    async def close(self) -> None:
        patience = _CLOSE_SECONDS if self.is_ready else 0.1
        self.send(Close())
        await self._process.end(patience)
        self._end("it was closed")

    async def _listen(self) -> None:
        """Until the engine is gone. What cannot be handled is a mistake of quire's, here or there: nobody would hear
        the engine from then on, so another takes its place."""
        try:
            while True:
                message = decode_from_engine(await self._inbox.recv())
                if isinstance(message, Lost):
                    self._last_word = message.cause
                else:
                    self._received(message)
        except Exception as error:
            _log.exception("engine %d said what cannot be handled; it is replaced", self.number)
            self._last_word = f"what it said cannot be handled: {type(error).__name__}"
            self._process.kill()

    async def _watch(self) -> None:
        """The process is gone: everything it had said before is read first, then it counts as lost."""
        code = await self._process.exited()
        listening = self._tasks[0]
        while not listening.done() and not self._inbox.closed and await self._inbox.poll(50):
            await asyncio.sleep(0.01)
        self._end(self._last_word or exit_cause(code))

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
