"""OpenAI's asynchronous Python client: many requests at once over the real server."""

import asyncio
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from tests.server.live import LiveServer

QUESTION: list[Any] = [{"role": "user", "content": "Count from one to five."}]


def connect(server: LiveServer) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120)


def test_answers_in_company_are_the_answers_alone(live_server: LiveServer) -> None:
    async def body() -> None:
        async with connect(live_server) as client:

            async def ask(tokens: int) -> str:
                answer = await client.chat.completions.create(
                    model=live_server.model, messages=QUESTION, temperature=0, max_tokens=tokens
                )
                return answer.choices[0].message.content or ""

            alone = await ask(12)
            together = await asyncio.gather(*(ask(tokens) for tokens in (4, 8, 12, 12, 12)))
            assert together[2:] == [alone] * 3
            assert alone.startswith(together[0])

    asyncio.run(body())


def test_streams_side_by_side(live_server: LiveServer) -> None:
    async def body() -> None:
        async with connect(live_server) as client:

            async def stream(seed: int) -> tuple[str, int]:
                text, usage = "", 0
                chunks = await client.chat.completions.create(
                    model=live_server.model,
                    messages=QUESTION,
                    seed=seed,
                    max_tokens=16,
                    stream=True,
                    stream_options={"include_usage": True},
                )
                async for chunk in chunks:
                    text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
                    usage = chunk.usage.completion_tokens if chunk.usage else usage
                return text, usage

            first = await asyncio.gather(*(stream(seed) for seed in range(6)))
            again = await asyncio.gather(*(stream(seed) for seed in range(6)))
            assert first == again
            assert all(0 < usage <= 16 for _, usage in first)
            assert len({text for text, _ in first}) > 1

    asyncio.run(body())


def test_an_abandoned_stream_leaves_the_others_alone(live_server: LiveServer) -> None:
    async def body() -> None:
        async with connect(live_server) as client:
            asked: dict[str, Any] = {"model": live_server.model, "messages": QUESTION, "temperature": 0}
            long = await client.chat.completions.create(
                **asked, max_tokens=4000, stream=True, extra_body={"ignore_eos": True}
            )
            await anext(aiter(long))
            other = asyncio.create_task(client.chat.completions.create(**asked, max_tokens=12))
            await long.close()
            alone = await client.chat.completions.create(**asked, max_tokens=12)
            assert (await other).choices[0].message.content == alone.choices[0].message.content

    asyncio.run(body())


def test_a_cancelled_task_raises_in_the_client_alone(live_server: LiveServer) -> None:
    async def body() -> None:
        async with connect(live_server) as client:
            asked: dict[str, Any] = {"model": live_server.model, "messages": QUESTION, "temperature": 0}
            task = asyncio.create_task(
                client.chat.completions.create(**asked, max_tokens=4000, extra_body={"ignore_eos": True})
            )
            await client.models.list()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await client.chat.completions.create(**asked, max_tokens=2)).choices

    asyncio.run(body())


def test_errors_have_their_classes(live_server: LiveServer) -> None:
    async def body() -> None:
        async with connect(live_server) as client:
            with pytest.raises(openai.NotFoundError):
                await client.chat.completions.create(model="no-such-model", messages=QUESTION)
            with pytest.raises(openai.BadRequestError) as caught:
                await client.chat.completions.create(model=live_server.model, messages=[])
            assert caught.value.param == "messages"

    asyncio.run(body())
