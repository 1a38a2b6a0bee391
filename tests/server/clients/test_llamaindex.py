"""LlamaIndex's `OpenAILike` pointed at the real server."""

import asyncio
from typing import Any

import pytest

from tests.server.clients.weather import NAME, RESULT, GetWeather, Report
from tests.server.clients.weather import QUESTION as WEATHER
from tests.server.live import LiveServer

# LlamaIndex and pydantic warn about their own changes; nothing of ours does
pytestmark = pytest.mark.filterwarnings("ignore")
QUESTION = "What is the capital of France? Answer in one word."


def model(server: LiveServer, *, is_chat: bool, **more: Any) -> Any:
    like = pytest.importorskip("llama_index.llms.openai_like")
    return like.OpenAILike(
        model=server.model,
        api_base=f"{server.url}/v1",
        api_key="none",
        is_chat_model=is_chat,
        **({"temperature": 0, "max_tokens": 12, "max_retries": 0, "timeout": 120} | more),
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


def caller(server: LiveServer) -> Any:
    return model(server, is_chat=True, is_function_calling_model=True, max_tokens=80)


def test_a_tool_is_called_and_its_result_read(live_server: LiveServer) -> None:
    llm = caller(live_server)
    from llama_index.core.llms import ChatMessage
    from llama_index.core.tools import FunctionTool

    tool = FunctionTool.from_defaults(lambda city, unit: RESULT, name=NAME, description="x", fn_schema=GetWeather)
    asked = {"user_msg": WEATHER, "tool_required": True, "allow_parallel_tool_calls": False}
    said = llm.chat_with_tools([tool], **asked)
    [call] = llm.get_tool_calls_from_response(said)
    GetWeather.model_validate(call.tool_kwargs)
    *_, last = llm.stream_chat_with_tools([tool], **asked)
    [streamed] = llm.get_tool_calls_from_response(last)
    assert (streamed.tool_name, streamed.tool_kwargs) == (call.tool_name, call.tool_kwargs)
    question = ChatMessage(role="user", content=WEATHER)
    result = ChatMessage(role="tool", content=RESULT, additional_kwargs={"tool_call_id": call.tool_id})
    answer = llm.chat_with_tools([tool], chat_history=[question, said.message, result], tool_choice="none")
    assert answer.message.content


def test_structured_output(live_server: LiveServer) -> None:
    """Whole alone: for a stream of it the package leaves the call to the model."""
    from llama_index.core.prompts import PromptTemplate

    assert isinstance(caller(live_server).structured_predict(Report, PromptTemplate(WEATHER)), Report)
