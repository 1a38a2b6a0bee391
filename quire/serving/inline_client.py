"""InlineClient: an engine in a thread of this process: nothing to start or kill, and no crash that it survives."""

import asyncio
import logging
from threading import Thread

from quire.core.errors import QuireError
from quire.serving.channel import QueueChannel
from quire.serving.client import EngineClient, OnMessage
from quire.serving.messages import ChildSettings, Close, FromEngine, StartFailed, ToEngine

_CLOSE_SECONDS = 10.0
_log = logging.getLogger(__name__)


class InlineClient(EngineClient):
    """For programs that cannot have child processes, and for tests. A step that hangs cannot be killed here."""

    def __init__(self, settings: ChildSettings, on_message: OnMessage) -> None:
        super().__init__(settings.replica, on_message)
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._channel = QueueChannel(self._deliver)
        self._thread = Thread(target=self._run, name=f"quire-engine-{self.number}", daemon=True)

    async def start(self) -> None:
        self._thread.start()

    def send(self, message: ToEngine) -> None:
        self._channel.inbox.put(message)

    async def close(self) -> None:
        self.send(Close())
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, _CLOSE_SECONDS)
        self._gone("it was closed")

    def _run(self) -> None:
        cause = "its thread ended"
        try:
            from quire.serving.runner import start_runner  # brings what a whole engine needs

            runner = start_runner(self._settings, self._channel)
            self._deliver(runner.started)
            runner.run()
        except QuireError as error:
            self._deliver(StartFailed(str(error)))
        except Exception as error:
            _log.exception("engine %d threw", self.number)
            cause = f"it threw {type(error).__name__}"
        self._call(self._gone, cause)

    def _deliver(self, message: FromEngine) -> None:
        self._call(self._received, message)

    def _call(self, function: object, argument: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, argument)  # type: ignore[arg-type]
