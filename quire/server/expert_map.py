"""ExpertMap: how the tokens of the last seconds were spread over experts, as engines tell it."""

import time
from collections.abc import Callable
from typing import Any

from quire.server.asked_engines import AskedEngines
from quire.serving.async_llm import AsyncLLM
from quire.serving.client import EngineClient
from quire.serving.messages import Experts


class ExpertMap:
    """What each engine last said. Lives on the event loop."""

    def __init__(self, llm: AsyncLLM, clock: Callable[[], float] = time.monotonic) -> None:
        self._llm = llm
        self._engines = AskedEngines(llm, self._ask, "the load of its experts", clock)

    async def replicas(self) -> list[dict[str, Any]]:
        """As /stats/experts shows them: those that have experts. Raises Unavailable where no engine has said anything
        yet."""
        return [
            {"replica": replica, "layers": found.layers, "shares": found.shares}
            for replica, found in (await self._engines.answers()).items()
            if found.layers
        ]

    async def _ask(self, client: EngineClient) -> Experts:
        return await self._llm.engine_calls.experts(client)
