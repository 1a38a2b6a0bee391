"""EngineCalls: questions to an engine that have one answer: its blocks, adapters and books, a profile, sleep."""

import asyncio
from collections import deque

from quire.core.errors import Unavailable
from quire.serving.client import EngineClient
from quire.serving.messages import (
    Adapters,
    AskAdapters,
    AskBlocks,
    AskCheck,
    AskExperts,
    Blocks,
    Checked,
    EndProfile,
    Experts,
    FromEngine,
    Profile,
    Profiled,
    Sleep,
    Slept,
    ToEngine,
    WakeUp,
)


class _Lost(Exception):
    """The engine that was asked is gone."""


class EngineCalls:
    """Answers come in the order of the questions, for each engine and kind of answer."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, type], deque[asyncio.Future[FromEngine]]] = {}

    async def blocks(self, client: EngineClient) -> Blocks:
        """The state of every KV block of an engine."""
        answer = await self._ask(client, AskBlocks(), Blocks)
        assert isinstance(answer, Blocks)
        return answer

    async def experts(self, client: EngineClient) -> Experts:
        """How the tokens of an engine are spread over experts."""
        answer = await self._ask(client, AskExperts(), Experts)
        assert isinstance(answer, Experts)
        return answer

    async def adapters(self, client: EngineClient) -> Adapters:
        """Where an engine has LoRA adapters."""
        answer = await self._ask(client, AskAdapters(), Adapters)
        assert isinstance(answer, Adapters)
        return answer

    async def check(self, client: EngineClient) -> Checked:
        """Whether the books of an engine balance."""
        answer = await self._ask(client, AskCheck(), Checked)
        assert isinstance(answer, Checked)
        return answer

    async def profile(self, client: EngineClient, steps: int, seconds: float, path: str) -> Profiled:
        """Record the next steps of an engine, as many as there are in that time."""
        asked = asyncio.create_task(self._ask(client, Profile(steps, path), Profiled))
        try:
            await asyncio.wait({asked}, timeout=seconds)
        finally:  # also where nobody waits any more
            if not asked.done():
                client.send(EndProfile(path))
        answer = await asked
        assert isinstance(answer, Profiled)
        return answer

    async def sleep(self, client: EngineClient, level: int) -> Slept:
        """Have an engine give its memory back."""
        answer = await self._ask(client, Sleep(level), Slept)
        assert isinstance(answer, Slept)
        return answer

    async def wake_up(self, client: EngineClient) -> Slept:
        """Have an engine take its memory again; answered when it has."""
        answer = await self._ask(client, WakeUp(), Slept)
        assert isinstance(answer, Slept)
        return answer

    def answered(self, client: EngineClient, answer: FromEngine) -> None:
        """An engine said something that is not about a generation."""
        waiting = self._waiting.get((client.number, type(answer)))
        if waiting:
            future = waiting.popleft()
            if not future.done():
                future.set_result(answer)

    def lost(self, replica: int) -> None:
        """An engine is gone, and its answers with it."""
        orphans: list[asyncio.Future[FromEngine]] = []
        for number, kind in list(self._waiting):
            if number == replica:
                orphans.extend(self._waiting.pop((number, kind)))
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
            raise Unavailable("the engine was lost before it answered; try again") from None
