"""AskedEngines: what every engine answers to a question, asked at most once a second however many pages look at it."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from quire.core.errors import Unavailable
from quire.serving.async_llm import AsyncLLM
from quire.serving.client import EngineClient

FRESH = 1.0
"""Seconds for which an answer is good."""
PATIENCE = 2.0
"""Seconds to wait for engines; one in a long step, or on its way out, is shown as it was."""
_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")


class AskedEngines(Generic[_Answer]):
    """What each engine last said. Lives on the event loop."""

    def __init__(
        self,
        llm: AsyncLLM,
        ask: Callable[[EngineClient], Awaitable[_Answer]],
        what: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`what` is asked for, as messages name it."""
        self._llm = llm
        self._ask_engine = ask
        self._what = what
        self._clock = clock
        self._known: dict[int, _Answer] = {}
        self._asked: float | None = None
        self._asking: asyncio.Task[None] | None = None

    async def answers(self) -> dict[int, _Answer]:
        """By engine; raises Unavailable where none has said anything yet."""
        if self._asking is None and (self._asked is None or self._clock() - self._asked >= FRESH):
            self._asked = self._clock()
            self._asking = asyncio.create_task(self._ask())
        if self._asking is not None:
            await asyncio.wait({self._asking}, timeout=PATIENCE)
        if not self._known:
            raise Unavailable(f"no engine has told {self._what} yet; try again in a moment")
        return {number: self._known[number] for number in sorted(self._known)}

    async def _ask(self) -> None:
        try:
            ready = self._llm.fleet.supervisor.ready()
            await asyncio.gather(*(self._ask_one(client) for client in ready))
        finally:
            self._asking = None

    async def _ask_one(self, client: EngineClient) -> None:
        try:
            self._known[client.number] = await self._ask_engine(client)
        except Unavailable as error:
            _log.debug("engine %d did not tell %s: %s", client.number, self._what, error)
