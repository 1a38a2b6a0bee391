"""LlamaIndex's `OpenAILike` pointed at the real server."""

import asyncio
from typing import Any

import pytest

from tests.server.live import LiveServer

# LlamaIndex and pydantic warn about their own changes; nothing of ours does
pytestmark = pytest.mark.filterwarnings("ignore")
QUESTION = "What is the capital of France? Answer in one word."


def model(server: LiveServer, *, is_chat: bool) -> Any:
    like = pytest.importorskip("llama_index.llms.openai_like")
    return like.OpenAILike(
        model=server.model,
        api_base=f"{server.url}/v1",
        api_key="none",
        is_chat_model=is_chat,
        temperature=0,
        max_tokens=12,
        max_retries=0,
        timeout=120,
    )


def message() -> Any:
    from llama_index.core.llms import ChatMessage

    return ChatMessage(role="user", content=QUESTION)


def test_complete_as_completion_and_as_chat(live_server: LiveServer) -> None:
    assert "Paris" in model(live_server, is_chat=False).complete("The capital of France is").text
    assert "Paris" in model(live_server, is_chat=True).complete(QUESTION).text


def test_chat(live_server: LiveServer) -> None:
    assert "Paris" in model(live_server, is_chat=True).chat([message()]).message.content


def test_streams_say_the_same(live_server: LiveServer) -> None:
    llm = model(live_server, is_chat=True)
    whole = llm.chat([message()]).message.content
    assert "".join(piece.delta or "" for piece in llm.stream_chat([message()])) == whole
    plain = model(live_server, is_chat=False)
    text = plain.complete("The capital of France is").text
    assert "".join(piece.delta or "" for piece in plain.stream_complete("The capital of France is")) == text


def test_asynchronous_chat(live_server: LiveServer) -> None:
    async def body() -> None:
        llm = model(live_server, is_chat=True)
        assert "Paris" in (await llm.achat([message()])).message.content

    asyncio.run(body())
