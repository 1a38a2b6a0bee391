"""EngineCalls: questions to an engine that have one answer: vectors or scores, its blocks, a check of its books, a
profile."""

import asyncio
from collections import deque

from quire.core.errors import RequestFailed
from quire.serving.client import EngineClient
from quire.serving.fleet import Fleet
from quire.serving.messages import (
    AskBlocks,
    AskCheck,
    Blocks,
    Checked,
    Embed,
    Embedded,
    FromEngine,
    Profile,
    Profiled,
    ToEngine,
)

_TRIES = 4
"""Engines that a request for vectors may lose before it fails."""


class _Lost(Exception):
    """The engine that was asked is gone."""


class EngineCalls:
    """Answers come in the order of the questions, for each engine and kind of answer."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, type], deque[asyncio.Future[FromEngine]]] = {}
        self._embeds: dict[str, tuple[int, asyncio.Future[Embedded]]] = {}

    async def embed(self, fleet: Fleet, job: Embed) -> Embedded:
        """Vectors or scores, from another engine if the first is lost."""
        for _ in range(_TRIES):
            client = fleet.least_loaded()
            future: asyncio.Future[Embedded] = asyncio.get_running_loop().create_future()
            self._embeds[job.id] = (client.number, future)
            client.send(job)
            try:
                return await future
            except _Lost:
                await fleet.ready_again()
            finally:
                self._embeds.pop(job.id, None)
        raise RequestFailed(f"request {job.id} could not be completed: {_TRIES} engines were lost computing it")

    async def blocks(self, client: EngineClient) -> bytes:
        """The state of every KV block of an engine."""
        answer = await self._ask(client, AskBlocks(), Blocks)
        assert isinstance(answer, Blocks)
        return answer.states

    async def check(self, client: EngineClient) -> Checked:
        """Whether the books of an engine balance."""
        answer = await self._ask(client, AskCheck(), Checked)
        assert isinstance(answer, Checked)
        return answer

    async def profile(self, client: EngineClient, steps: int, path: str) -> Profiled:
        """Wait for the next steps of an engine to be recorded."""
        answer = await self._ask(client, Profile(steps, path), Profiled)
        assert isinstance(answer, Profiled)
        return answer

    def answered(self, client: EngineClient, answer: FromEngine) -> None:
        """An engine said something that is not about a generation."""
        future: asyncio.Future[FromEngine] | asyncio.Future[Embedded]
        if isinstance(answer, Embedded):
            _, future = self._embeds.get(answer.id, (0, None))  # type: ignore[assignment]
            if future is not None and not future.done():
                future.set_result(answer)
            return
        waiting = self._waiting.get((client.number, type(answer)))
        if waiting:
            future = waiting.popleft()
            if not future.done():
                future.set_result(answer)

    def lost(self, replica: int) -> None:
        """An engine is gone, and its answers with it."""
        orphans: list[asyncio.Future[FromEngine] | asyncio.Future[Embedded]] = []
        for number, kind in list(self._waiting):
            if number == replica:
                orphans.extend(self._waiting.pop((number, kind)))
        orphans.extend(future for number, future in self._embeds.values() if number == replica)
        for future in orphans:
            if not future.done():
                future.set_exception(_Lost())

    async def _ask(self, client: EngineClient, question: ToEngine, kind: type) -> FromEngine:
        future: asyncio.Future[FromEngine] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault((client.number, kind), deque()).append(future)
        client.send(question)
        try:
            return await future
        except _Lost:
            raise RequestFailed("the engine was lost before it answered; try again") from None
