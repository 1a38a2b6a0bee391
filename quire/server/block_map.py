"""BlockMap: the state of every KV block, as engines tell it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from quire.server.asked_engines import AskedEngines
from quire.serving.async_llm import AsyncLLM
from quire.serving.client import EngineClient
from quire.serving.messages import Blocks

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
        self._engines = AskedEngines(llm, self._ask, "the state of its KV blocks", clock)

    async def replicas(self, tenant: str | None) -> list[Shown]:
        """As /stats/blocks shows them to a tenant, or with every request's id to None; raises Unavailable where no
        engine has said anything yet."""
        return [known.shown(tenant) for known in (await self._engines.answers()).values()]

    async def _ask(self, client: EngineClient) -> _Known:
        blocks = await self._llm.engine_calls.blocks(client)
        return _Known(client.number, client.stats.block_size, blocks)
