"""EngineClient: the one way to reach an engine, wherever it runs. Each kind is a file: inline, process, remote."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from quire.core.stats import EngineStats
from quire.serving.messages import FromEngine, Report, Started, StartFailed, ToEngine

OnMessage = Callable[["EngineClient", FromEngine], None]


class EngineClient(ABC):
    """One engine from its start to its loss. A lost one is followed by a new object; it lives on one event loop."""

    def __init__(self, number: int, on_message: OnMessage) -> None:
        self.number = number
        """Its place among the engines of a server."""
        self.started: Started | None = None
        """None while it takes no requests."""
        self.start_failure: str | None = None
        """Why these settings cannot start it."""
        self.stats = EngineStats()
        self.loss: str | None = None
        """Why the engine is gone, once it is."""
        self._is_lost = asyncio.Event()
        self._on_message = on_message
        self._heard = time.monotonic()
        self._ready_since: float | None = None
        self.seconds_served = 0.0
        """How long a lost engine had been ready."""

    @abstractmethod
    async def start(self) -> None:
        """Begin: returns when the engine is on its way, and raises where that is not possible."""

    @abstractmethod
    def send(self, message: ToEngine) -> None:
        """Never waits. What is sent to a lost engine is dropped: its requests are on their way elsewhere."""

    @abstractmethod
    async def close(self) -> None:
        """End the engine, or the connection to it; allowed in every state."""

    async def lost(self) -> str:
        """Wait until the engine is gone; returns why."""
        await self._is_lost.wait()
        assert self.loss is not None
        return self.loss

    @property
    def pid(self) -> int:
        """Of its process on this machine; 0 where there is none."""
        return 0

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

    def _received(self, message: FromEngine) -> None:
        """For each kind to call: note what a message says of the engine, then pass it on."""
        self._heard = time.monotonic()
        if isinstance(message, Report):
            self.stats = message.stats
        elif isinstance(message, Started):
            self.started, self._ready_since = message, self._heard
        elif isinstance(message, StartFailed):
            self.start_failure = message.message
        self._on_message(self, message)

    def _gone(self, cause: str) -> None:
        """For each kind to call once the engine cannot answer any more."""
        self.seconds_served = max(self.seconds_served, self.seconds_ready)
        self.started = self._ready_since = None
        if self.loss is None:
            self.loss = cause if self.start_failure is None else f"it cannot be started: {self.start_failure}"
            self._is_lost.set()
