"""RemoteClient: an engine that `quire engine` runs, on another host or behind a unix socket."""

import asyncio
import logging
from contextlib import suppress

import msgspec

from quire.kvcache.transfer.wire import with_host
from quire.serving.client import EngineClient, OnMessage
from quire.serving.engine_link import EngineAddress, connect
from quire.serving.link import Link, LinkRefused
from quire.serving.messages import Lost, ToEngine, decode_from_engine, encode

_LOOK_EVERY = 0.5
_SILENT_SECONDS = 30.0
"""An engine says something every second, also when idle or starting; a host that is gone says nothing."""
_log = logging.getLogger(__name__)


class RemoteClient(EngineClient):
    """Its host starts and replaces the engine; this end connects, and connects again."""

    def __init__(
        self, number: int, address: EngineAddress, secret: bytes, on_message: OnMessage, ca_file: str | None = None
    ) -> None:
        super().__init__(number, on_message)
        self.address = address
        self._secret = secret
        self._ca_file = ca_file
        self._link: Link | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def pid(self) -> int:
        return self.started.pid if self.started is not None and self.address.scheme == "unix" else 0

    @property
    def kv_address(self) -> str:
        told = super().kv_address
        return with_host(told, self.address.host) if told else ""

    async def start(self) -> None:
        try:
            self._link = await connect(self.address, self._secret, self._ca_file)
        except TimeoutError:
            raise LinkRefused(f"nobody answers at {self.address}") from None
        except OSError as error:
            raise LinkRefused(f"{self.address} cannot be reached: {error.strerror or error}") from None
        self._tasks = [asyncio.create_task(work) for work in (self._listen(self._link), self._look())]

    def send(self, message: ToEngine) -> None:
        if self._link is not None:
            self._link.send(encode(message))

    async def close(self) -> None:
        self._end("it was closed")

    async def _listen(self, link: Link) -> None:
        cause = f"the connection to {self.address} is lost"
        try:
            while True:
                message = decode_from_engine(await link.receive())
                if isinstance(message, Lost):
                    cause = f"its host says: {message.cause}"
                    break
                self._received(message)
        except (LinkRefused, msgspec.DecodeError, UnicodeDecodeError) as error:
            cause = f"what came from {self.address} cannot be read ({error})"
        except (asyncio.IncompleteReadError, OSError):
            pass
        self._end(cause)

    async def _look(self) -> None:
        while self.seconds_silent < _SILENT_SECONDS:
            await asyncio.sleep(_LOOK_EVERY)
        _log.error("engine %d at %s has been silent for %.0f s", self.number, self.address, self.seconds_silent)
        self._end(f"{self.address} has been silent for {self.seconds_silent:.0f} s")

    def _end(self, cause: str) -> None:
        current = asyncio.current_task()
        for task in self._tasks:
            if task is not current:
                task.cancel()
        if self._link is not None:
            with suppress(OSError):
                self._link.close()
        self._gone(cause)
