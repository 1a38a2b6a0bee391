"""BlockMap: the state of every KV block, asked of the engines at most once a second however many pages look at it."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from quire.core.errors import RequestFailed, Unavailable
from quire.serving.async_llm import AsyncLLM
from quire.serving.client import EngineClient
from quire.serving.messages import Blocks

_FRESH = 1.0
"""Seconds for which an answer is good."""
_PATIENCE = 2.0
"""Seconds to wait for engines; one in a long step, or on its way out, is shown as it was."""
_log = logging.getLogger(__name__)

Shown = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Known:
    """An engine's answer."""

    replica: int
    block_size: int
    blocks: Blocks

    def shown(self, tenant: str | None) -> Shown:
        """Whose a block is, a tenant is told of its own requests only."""
        return {
            "replica": self.replica,
            "num_blocks": sum(self.blocks.runs[1::2]),
            "block_size": self.block_size,
            "runs": self.blocks.runs,
            "requests": [identity if tenant in (None, owner) else None for identity, owner in self.blocks.requests],
        }


class BlockMap:
    """What each engine last said. Lives on the event loop."""

    def __init__(self, llm: AsyncLLM, clock: Callable[[], float] = time.monotonic) -> None:
        self._llm = llm
        self._clock = clock
        self._known: dict[int, _Known] = {}
        self._asked: float | None = None
        self._asking: asyncio.Task[None] | None = None

    async def replicas(self, tenant: str | None) -> list[Shown]:
        """As /stats/blocks shows them to a tenant, or with every request's id to None; raises Unavailable where no
        engine has said anything yet."""
        if self._asking is None and (self._asked is None or self._clock() - self._asked >= _FRESH):
            self._asked = self._clock()
            self._asking = asyncio.create_task(self._ask())
        if self._asking is not None:
            await asyncio.wait({self._asking}, timeout=_PATIENCE)
        if not self._known:
            raise Unavailable("no engine has told the state of its KV blocks yet; try again in a moment")
        return [self._known[number].shown(tenant) for number in sorted(self._known)]

    async def _ask(self) -> None:
        try:
            ready = self._llm.fleet.supervisor.ready()
            await asyncio.gather(*(self._ask_one(client) for client in ready))
        finally:
            self._asking = None

    async def _ask_one(self, client: EngineClient) -> None:
        try:
            blocks = await self._llm.engine_calls.blocks(client)
        except RequestFailed as error:
            _log.debug("engine %d did not tell its blocks: %s", client.number, error)
            return
        self._known[client.number] = _Known(client.number, client.stats.block_size, blocks)
