"""OpenAI's own Python client: pydantic models as answers and as tools, in chats and responses."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types.chat import ParsedChatCompletionMessage
from openai.types.responses import ParsedResponseFunctionToolCall

from tests.server.clients.weather import QUESTION, RESULT, GetWeather, Report
from tests.server.live import LiveServer

CHAT: list[Any] = [{"role": "user", "content": QUESTION}]
TOOL: Any = openai.pydantic_function_tool(GetWeather)
FLAT: Any = {"type": "function", **TOOL["function"]}
FORCED: dict[str, Any] = {"tool_choice": "required", "parallel_tool_calls": False}


@pytest.fixture(scope="module")
def client(live_server: LiveServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{live_server.url}/v1", api_key="none", max_retries=0, timeout=120) as client:
        yield client


@pytest.fixture
def chat(live_server: LiveServer) -> dict[str, Any]:
    return {"model": live_server.model, "temperature": 0, "max_tokens": 80}


@pytest.fixture
def response(live_server: LiveServer) -> dict[str, Any]:
    return {"model": live_server.model, "temperature": 0, "max_output_tokens": 80}


def parsed_call(message: ParsedChatCompletionMessage[Any]) -> Any:
    [call] = message.tool_calls or []
    assert isinstance(call.function.parsed_arguments, GetWeather)
    return call


def test_a_chat_answers_with_a_model(client: OpenAI, chat: dict[str, Any]) -> None:
    whole = client.chat.completions.parse(messages=CHAT, response_format=Report, **chat).choices[0].message
    assert isinstance(whole.parsed, Report)
    with client.chat.completions.stream(messages=CHAT, response_format=Report, **chat) as stream:
        partial = [event.parsed for event in stream if event.type == "content.delta"]
        assert stream.get_final_completion().choices[0].message.parsed == whole.parsed
    assert partial[0] != partial[-1] == whole.parsed.model_dump()


def test_a_chat_calls_a_tool_and_reads_its_result(client: OpenAI, chat: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"tools": [TOOL], **chat}
    first = client.chat.completions.parse(messages=CHAT, **FORCED, **asked)
    call = parsed_call(first.choices[0].message)
    with client.chat.completions.stream(messages=CHAT, **FORCED, **asked) as stream:
        deltas = [event.arguments_delta for event in stream if event.type == "tool_calls.function.arguments.delta"]
        streamed = parsed_call(stream.get_final_completion().choices[0].message)
    assert streamed.function.arguments == call.function.arguments == "".join(deltas)
    said = {"role": "assistant", "tool_calls": [call.model_dump(exclude={"function": {"parsed_arguments"}})]}
    result = {"role": "tool", "tool_call_id": call.id, "content": RESULT}
    answer = client.chat.completions.create(messages=[*CHAT, said, result], tool_choice="none", **asked)
    assert answer.choices[0].message.content
    assert not answer.choices[0].message.tool_calls


def test_a_response_is_a_model(client: OpenAI, response: dict[str, Any]) -> None:
    whole = client.responses.parse(input=QUESTION, text_format=Report, **response)
    assert isinstance(whole.output_parsed, Report)
    with client.responses.stream(input=QUESTION, text_format=Report, **response) as stream:
        types = [event.type for event in stream]
        assert stream.get_final_response().output_parsed == whole.output_parsed
    assert types.count("response.output_text.delta") > 1
    assert types[-1] == "response.completed"


def test_a_response_calls_a_tool_and_reads_its_result(client: OpenAI, response: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"tools": [FLAT], **response}
    first = client.responses.parse(input=QUESTION, **FORCED, **asked)
    [call] = first.output
    assert isinstance(call, ParsedResponseFunctionToolCall)
    GetWeather.model_validate_json(call.arguments)
    with client.responses.stream(input=QUESTION, **FORCED, **asked) as stream:
        deltas = [event.delta for event in stream if event.type == "response.function_call_arguments.delta"]
    assert "".join(deltas) == call.arguments
    result: list[Any] = [{"type": "function_call_output", "call_id": call.call_id, "output": RESULT}]
    answer = client.responses.create(input=result, previous_response_id=first.id, tool_choice="none", **asked)
    assert answer.output_text


def test_a_call_is_made_where_a_language_of_the_text_is_given_too(client: OpenAI, chat: dict[str, Any]) -> None:
    answer = client.chat.completions.parse(messages=CHAT, tools=[TOOL], response_format=Report, **FORCED, **chat)
    parsed_call(answer.choices[0].message)
    assert answer.choices[0].message.content is None
