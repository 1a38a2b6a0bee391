"""AdapterMap: which LoRA adapters each engine has on its device or in host memory, and how many requests want them."""

import time
from collections.abc import Callable
from typing import Any

from quire.server.asked_engines import AskedEngines
from quire.serving.async_llm import AsyncLLM
from quire.serving.client import EngineClient
from quire.serving.messages import Adapters

_MOST = 200
"""Adapters of one engine that are shown: host memory may hold thousands."""


class AdapterMap:
    """What each engine last said. Lives on the event loop."""

    def __init__(self, llm: AsyncLLM, clock: Callable[[], float] = time.monotonic) -> None:
        self._llm = llm
        self._engines = AskedEngines(llm, self._ask, "where adapters are", clock)

    async def replicas(self, models: frozenset[str] | None) -> list[dict[str, Any]]:
        """As /stats/adapters shows them to a key that may use `models`, or all (None): one that may not use an adapter
        does not hear of it. Raises Unavailable where there are adapters and no engine has said anything yet."""
        if self._llm.adapters is None:
            return []
        found = (await self._engines.answers()).items()
        return [{"replica": replica, **_shown(told, models)} for replica, told in found]

    async def _ask(self, client: EngineClient) -> Adapters:
        return await self._llm.engine_calls.adapters(client)


def _shown(told: Adapters, models: frozenset[str] | None) -> dict[str, Any]:
    allowed = [each for each in told.adapters if models is None or each.name in models]
    rows = [{name: getattr(each, name) for name in each.__struct_fields__} for each in allowed[:_MOST]]
    return {"adapters": rows, "left_out": max(0, len(allowed) - _MOST)}
