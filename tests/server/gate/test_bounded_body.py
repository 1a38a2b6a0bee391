"""Bodies that stop coming, and those that have come."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from starlette.types import Message

from quire.server.errors import BodyTooSlow
from quire.server.gate.bounded_body import BoundedBody


def test_a_body_that_stops_coming_ends() -> None:
    async def scenario() -> None:
        now = 0.0
        waits: AsyncIterator[Message]

        async def pieces() -> AsyncIterator[Message]:
            nonlocal now
            yield {"type": "http.request", "body": b"x" * 10, "more_body": True}
            now = 29.0
            yield {"type": "http.request", "body": b"x" * 10, "more_body": True}
            now = 31.0
            await asyncio.Event().wait()

        waits = pieces()

        async def receive() -> Message:
            return await anext(waits)

        body = BoundedBody(receive, 1000, clock=lambda: now)
        await body.receive()
        await body.receive()
        now = 31.0
        with pytest.raises(BodyTooSlow, match="20 bytes"):
            await body.receive()

    asyncio.run(scenario())


def test_a_complete_body_is_never_late() -> None:
    async def scenario() -> None:
        now = 0.0
        messages: list[Message] = [
            {"type": "http.request", "body": b"x", "more_body": False},
            {"type": "http.disconnect"},
        ]

        async def receive() -> Message:
            await asyncio.sleep(0)
            return messages.pop(0)

        body = BoundedBody(receive, 1000, clock=lambda: now)
        await body.receive()
        now = 10**6
        assert (await body.receive())["type"] == "http.disconnect"

    asyncio.run(scenario())
