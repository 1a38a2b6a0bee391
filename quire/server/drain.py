"""Drain: whether the server is on its way out, and what work it still has to see through."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from quire.core.errors import Unavailable

_COME_BACK = 5.0
"""Seconds after which another server, or this one started again, may have taken over."""


class Drain:
    """Shared by the listener, which begins it, and by whoever takes work in."""

    def __init__(self) -> None:
        self.begun = False
        self.running = 0
        """Pieces of work that were taken in and have not ended."""
        self._quiet = asyncio.Event()
        self._quiet.set()

    def begin(self) -> None:
        """Take in nothing new from now on."""
        self.begun = True

    def check(self) -> None:
        """Raise Unavailable once it has begun."""
        if self.begun:
            raise Unavailable(
                "the server is shutting down and takes no new work; try another one.", retry_after=_COME_BACK
            )

    @contextmanager
    def work(self) -> Iterator[None]:
        """One piece of work, refused once the drain has begun and waited for until it ends."""
        self.check()
        self.running += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self.running -= 1
            if self.running == 0:
                self._quiet.set()

    async def quiet(self) -> None:
        """Wait until no work is running."""
        await self._quiet.wait()
