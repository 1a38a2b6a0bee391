"""Anthropic's Python client against /v1/messages."""

import json
from typing import Any, Literal

import anthropic
import pytest
from anthropic import Anthropic

from tests.server.clients.weather import NAME, RESULT, SCHEMA, GetWeather, Report
from tests.server.clients.weather import QUESTION as WEATHER
from tests.server.live import LiveServer

QUESTION: list[Any] = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]

GREEDY = {"temperature": 0}
"""The API has the field; this client no longer has a name for it."""


@pytest.fixture(scope="module")
def client(live_server: LiveServer) -> Any:
    with Anthropic(base_url=live_server.url, api_key="none", max_retries=0, timeout=120) as client:
        yield client


def test_a_message(client: Anthropic, live_server: LiveServer) -> None:
    answer = client.messages.create(
        model=live_server.model, messages=QUESTION, max_tokens=12, extra_body=GREEDY, system="You answer briefly."
    )
    assert answer.type == "message"
    assert answer.role == "assistant"
    assert answer.content[0].type == "text"
    assert "Paris" in answer.content[0].text
    assert answer.stop_reason in ("end_turn", "max_tokens")
    assert answer.usage.output_tokens <= 12


def test_a_stream_says_the_same(client: Anthropic, live_server: LiveServer) -> None:
    asked: dict[str, Any] = {"model": live_server.model, "messages": QUESTION, "max_tokens": 12, "extra_body": GREEDY}
    whole = client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert whole.content[0].type == "text"
    assert text == whole.content[0].text
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_stop_sequences(client: Anthropic, live_server: LiveServer) -> None:
    asked: dict[str, Any] = {"model": live_server.model, "messages": QUESTION, "max_tokens": 12, "extra_body": GREEDY}
    answer = client.messages.create(**asked, stop_sequences=["Paris"])
    assert answer.stop_reason == "stop_sequence"
    assert answer.stop_sequence == "Paris"


def test_errors_have_their_classes(client: Anthropic, live_server: LiveServer) -> None:
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(model="no-such-model", messages=QUESTION, max_tokens=4)
    with pytest.raises(anthropic.BadRequestError) as caught:
        client.messages.create(model=live_server.model, messages=QUESTION, max_tokens=4, extra_body={"temperature": -1})
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["type"] == "error"
    assert caught.value.body["error"]["type"] == "invalid_request_error"


def tool_asked(model: str) -> dict[str, Any]:
    tool = {"name": NAME, "description": "The weather of a city.", "input_schema": SCHEMA}
    choice = {"type": "tool", "name": NAME}
    return {"model": model, "max_tokens": 80, "tools": [tool], "tool_choice": choice, "extra_body": GREEDY}


def test_a_tool_is_called_and_its_result_read(client: Anthropic, live_server: LiveServer) -> None:
    messages: list[Any] = [{"role": "user", "content": WEATHER}]
    asked = tool_asked(live_server.model)
    said = client.messages.create(messages=messages, **asked)
    [call] = said.content
    assert call.type == "tool_use"
    GetWeather.model_validate(call.input)
    assert said.stop_reason == "tool_use"
    with client.messages.stream(messages=messages, **asked) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
        [streamed] = stream.get_final_message().content
    assert streamed.type == "tool_use"
    assert streamed.input == call.input == json.loads("".join(pieces))
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": RESULT}]}
    messages += [{"role": "assistant", "content": said.content}, result]
    answer = client.messages.create(messages=messages, **{**asked, "tool_choice": {"type": "none"}})
    assert [block.type for block in answer.content] == ["text"]


def test_the_clients_own_runner_of_tools(client: Anthropic, live_server: LiveServer) -> None:
    ran: list[str] = []

    @anthropic.beta_tool
    def get_weather(unit: Literal["celsius", "fahrenheit"]) -> str:
        """The weather."""
        ran.append(unit)
        return RESULT

    runner = client.beta.messages.tool_runner(
        model=live_server.model,
        messages=[{"role": "user", "content": WEATHER}],
        max_tokens=80,
        tools=[get_weather],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
        max_iterations=2,  # it sends the choice with every turn, so that every turn is a call
    )
    first, second = runner
    read = [(turn.usage.cache_read_input_tokens or 0) + turn.usage.input_tokens for turn in (first, second)]
    assert read[1] > read[0] + first.usage.output_tokens  # the call and its result went before the second
    assert ran
    assert set(ran) <= {"celsius", "fahrenheit"}


def test_structured_output(client: Anthropic, live_server: LiveServer) -> None:
    asked: dict[str, Any] = {"model": live_server.model, "max_tokens": 80, "extra_body": GREEDY}
    asked["messages"] = [{"role": "user", "content": WEATHER}]
    whole = client.messages.parse(output_format=Report, **asked)
    assert isinstance(whole.parsed_output, Report)
    with client.messages.stream(output_format=Report, **asked) as stream:
        assert len(list(stream.text_stream)) > 1
        assert stream.get_final_message().parsed_output == whole.parsed_output
