"""Supervised: what a supervisor keeps alive: started once, ready at some time, lost in the end for a cause."""

import asyncio
import time
from abc import ABC, abstractmethod


class Supervised(ABC):
    """One life. What is lost is followed by a new object; it lives on one event loop."""

    def __init__(self, number: int) -> None:
        self.number = number
        """Its place among those of its kind."""
        self.start_failure: str | None = None
        """Why these settings cannot start it."""
        self.loss: str | None = None
        """Why it is gone, once it is."""
        self.waiting_for: str | None = None
        """What keeps it from starting that others have to do."""
        self.seconds_served = 0.0
        """How long one that is lost had been ready."""
        self._is_lost = asyncio.Event()
        self.heard = time.monotonic()
        """When it last said something."""
        self._ready_since: float | None = None

    @abstractmethod
    async def start(self) -> None:
        """Begin: returns when it is on its way, and raises where that is not possible."""

    @abstractmethod
    async def close(self) -> None:
        """End it, or the connection to it; allowed in every state."""

    async def lost(self) -> str:
        """Wait until it is gone; returns why."""
        await self._is_lost.wait()
        assert self.loss is not None
        return self.loss

    @property
    def pid(self) -> int:
        """Of its process on this machine; 0 where there is none."""
        return 0

    @property
    def is_ready(self) -> bool:
        """Whether it does its work now."""
        return self._ready_since is not None

    @property
    def seconds_ready(self) -> float:
        """How long it has been ready; 0 while it is not."""
        return 0.0 if self._ready_since is None else time.monotonic() - self._ready_since

    @property
    def seconds_silent(self) -> float:
        return time.monotonic() - self.heard

    def _became_ready(self) -> None:
        """For each kind to call once it does its work."""
        self._ready_since = time.monotonic()

    def _gone(self, cause: str) -> None:
        """For each kind to call once it cannot answer any more."""
        self.seconds_served = max(self.seconds_served, self.seconds_ready)
        self._ready_since = None
        if self.loss is None:
            self.loss = cause if self.start_failure is None else f"it cannot be started: {self.start_failure}"
            self._is_lost.set()
