"""HostedFront: a whole server of quire's inside a replica: its HTTP, its tokenizer and the engines that it starts."""

import asyncio
from contextlib import suppress
from typing import Any

from quire.config.engine import EngineConfig
from quire.server.front import Front, Listening
from quire.serving.begun_engines import begun_engines


class HostedFront:
    """From its start to its last answer."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._heard: asyncio.Future[Listening] = asyncio.get_running_loop().create_future()
        self._serving: asyncio.Task[int] | None = None

    @property
    def url(self) -> str:
        return self._listening.url

    @property
    def num_requests(self) -> int:
        """Those that it has not completed."""
        return len(self._listening.llm.fleet.dispatcher.journal)

    async def start(self) -> None:
        """Until it takes work; raises what keeps it from that."""
        self._serving = asyncio.create_task(self._serve())
        await self._or_its_end(self._heard)
        await self._or_its_end(asyncio.ensure_future(self._listening.llm.ready()))

    def problem(self) -> str | None:
        """What /health would say; None while it does its work."""
        if self._serving is None or self._serving.done():
            return "the server has ended"
        return self._listening.llm.fleet.supervisor.health_problem()

    async def drain(self) -> None:
        """Take nothing new, see running answers through, and end."""
        assert self._serving is not None
        if self._heard.done() and not self._serving.done():
            self._listening.stop()
        else:
            self._serving.cancel()
        with suppress(asyncio.CancelledError):
            await self._serving

    @property
    def _listening(self) -> Listening:
        return self._heard.result()

    async def _serve(self) -> int:
        async with begun_engines(self._config.server) as begun:
            return await Front(self._config, begun=begun, host=self._heard.set_result).serve()

    async def _or_its_end(self, waited: "asyncio.Future[Any]") -> None:
        assert self._serving is not None
        both: set[asyncio.Future[Any]] = {waited, self._serving}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if self._serving.done():
            waited.cancel()
            self._serving.result()  # raises what it died of
            raise RuntimeError("the server ended while it started")
        waited.result()
