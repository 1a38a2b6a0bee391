"""Tool calls and thinking over a real server: OpenAI's and Anthropic's clients, and a model that is held to its calls.

The default model's own template knows neither tools nor thinking, so it gets one that does.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from anthropic import Anthropic
from openai import OpenAI

from tests.server.live import LiveServer, running_server

TEMPLATE = Path(__file__).parents[2] / "protocol" / "parsers" / "hermes.jinja"
QUESTION: list[Any] = [{"role": "user", "content": "What is the weather in Paris, in celsius?"}]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "unit": {"enum": ["celsius", "fahrenheit"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
NOTHING: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "get_weather", "description": "The weather.", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "get_time", "parameters": NOTHING}},
]
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 80, "parallel_tool_calls": False}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with running_server(tmp_path_factory.mktemp("tools"), "--chat-template", str(TEMPLATE)) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: LiveServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120) as client:
        yield client


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("required", {"get_weather", "get_time"}),
        ({"type": "function", "function": {"name": "get_weather"}}, {"get_weather"}),
        ({"type": "function", "function": {"name": "get_time"}}, {"get_time"}),
    ],
)
def test_a_call_that_must_be_made(client: OpenAI, server: LiveServer, choice: Any, names: set[str]) -> None:
    answer = client.chat.completions.create(
        model=server.model, messages=QUESTION, tools=TOOLS, tool_choice=choice, **GREEDY
    )
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls"
    [call] = choice.message.tool_calls or []
    assert call.type == "function"
    assert call.function.name in names
    arguments = json.loads(call.function.arguments)
    if call.function.name == "get_weather":
        assert arguments["unit"] in ("celsius", "fahrenheit")
    else:
        assert arguments == {}


def test_a_stream_says_the_same(client: OpenAI, server: LiveServer) -> None:
    asked: dict[str, Any] = {"model": server.model, "messages": QUESTION, "tools": TOOLS, "tool_choice": "required"}
    whole = client.chat.completions.create(**asked, **GREEDY).choices[0]
    with client.chat.completions.stream(**asked, **GREEDY) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion().choices[0]
    [said], [streamed] = whole.message.tool_calls or [], final.message.tool_calls or []
    assert said.type == "function"
    assert (streamed.function.name, streamed.function.arguments) == (said.function.name, said.function.arguments)
    assert final.finish_reason == "tool_calls"


def test_the_result_goes_back_and_the_model_answers(client: OpenAI, server: LiveServer) -> None:
    first = client.chat.completions.create(
        model=server.model, messages=QUESTION, tools=TOOLS, tool_choice="required", **GREEDY
    ).choices[0]
    [call] = first.message.tool_calls or []
    result = {"role": "tool", "tool_call_id": call.id, "content": '{"degrees": 21}'}
    messages = [*QUESTION, first.message.model_dump(exclude_none=True), result]
    answer = client.chat.completions.create(model=server.model, messages=messages, tools=TOOLS, **GREEDY).choices[0]
    assert answer.message.content or answer.message.tool_calls


def test_strict_tools_leave_the_model_free_to_talk(client: OpenAI, server: LiveServer) -> None:
    strict = [{"type": "function", "function": {**tool["function"], "strict": True}} for tool in TOOLS]
    answer = client.chat.completions.create(model=server.model, messages=QUESTION, tools=strict, **GREEDY).choices[0]
    for call in answer.message.tool_calls or []:
        assert call.type == "function"
        json.loads(call.function.arguments)
    assert answer.message.content or answer.message.tool_calls


def test_thinking_within_a_budget_then_a_call(client: OpenAI, server: LiveServer) -> None:
    body = {"chat_template_kwargs": {"enable_thinking": True}, "thinking_token_budget": 6}
    asked: dict[str, Any] = {"model": server.model, "messages": QUESTION, "extra_body": body, **GREEDY}
    answer = client.chat.completions.create(**asked, tools=TOOLS, tool_choice="required")
    message = answer.choices[0].message.model_dump()
    assert message["reasoning_content"]
    assert message["reasoning"] == message["reasoning_content"]
    assert message["tool_calls"]
    assert answer.usage is not None
    assert answer.usage.completion_tokens_details is not None
    assert 0 < (answer.usage.completion_tokens_details.reasoning_tokens or 0) <= 6
    plain = client.chat.completions.create(**{**asked, "parallel_tool_calls": openai.NOT_GIVEN}).choices[0].message
    assert plain.model_dump()["reasoning"]


def test_a_model_whose_template_has_no_place_for_tools(live_server: LiveServer) -> None:
    """OpenAI's two APIs, Anthropic's and Ollama's, whole and streamed, with a result on the way back."""
    choice = {"type": "function", "function": {"name": "get_weather"}}
    asked: dict[str, Any] = {"model": live_server.model, "temperature": 0}
    with OpenAI(base_url=f"{live_server.url}/v1", api_key="none", max_retries=0) as other:
        message = other.chat.completions.create(messages=QUESTION, tools=TOOLS, tool_choice=choice, **asked)  # type: ignore[call-overload]
        [call] = message.choices[0].message.tool_calls
        result = {"role": "tool", "tool_call_id": call.id, "content": "12 degrees"}
        later = [*QUESTION, message.choices[0].message.model_dump(exclude_none=True), result]
        again = other.chat.completions.create(messages=later, tools=TOOLS, max_tokens=5, **asked)
        assert again.usage.prompt_tokens > message.usage.prompt_tokens + 20
        chunks = other.chat.completions.create(messages=QUESTION, tools=TOOLS, tool_choice=choice, stream=True, **asked)  # type: ignore[call-overload]
        pieces = [piece for chunk in chunks for piece in chunk.choices[0].delta.tool_calls or ()]
        assert "".join(piece.function.arguments for piece in pieces) == call.function.arguments
        flat = [{"type": "function", **tool["function"]} for tool in TOOLS]
        response = other.responses.create(
            input=QUESTION[0]["content"], tools=flat, tool_choice={"type": "function", "name": "get_weather"}, **asked
        )
        assert [item.name for item in response.output if item.type == "function_call"] == ["get_weather"]
    with Anthropic(base_url=live_server.url, api_key="none", max_retries=0) as anthropic:
        said = anthropic.messages.create(
            messages=QUESTION,
            tools=[{"name": "get_weather", "input_schema": SCHEMA}],
            tool_choice={"type": "tool", "name": "get_weather"},
            max_tokens=100,
            model=live_server.model,
        )
        assert [block.name for block in said.content if block.type == "tool_use"] == ["get_weather"]
    with live_server.client() as plain:
        body = {"messages": QUESTION, "tools": TOOLS, "stream": False, "options": {"num_predict": 3}}
        assert plain.post("/api/chat", json=body).json()["message"]["role"] == "assistant"
        assert "tools" in plain.post("/api/show", json={}).json()["capabilities"]


@pytest.mark.parametrize("schema", [{"type": "string"}, {"$ref": "#"}, {"not": {}}, {"enum": []}])
def test_a_schema_that_no_grammar_holds_is_refused(client: OpenAI, server: LiveServer, schema: dict[str, Any]) -> None:
    bad: list[Any] = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    with pytest.raises(openai.BadRequestError, match="the parameters of the tool") as caught:
        client.chat.completions.create(
            model=server.model, messages=QUESTION, tools=bad, tool_choice="required", **GREEDY
        )
    assert caught.value.param == "tools"


def test_responses(client: OpenAI, server: LiveServer) -> None:
    tools: list[Any] = [{"type": "function", "strict": False, **tool["function"]} for tool in TOOLS]
    asked: dict[str, Any] = {
        "model": server.model,
        "tools": tools,
        "temperature": 0,
        "max_output_tokens": 80,
        "parallel_tool_calls": False,
    }
    first = client.responses.create(input="The weather in Paris?", tool_choice="required", **asked)
    [call] = first.output
    assert call.type == "function_call"
    json.loads(call.arguments)
    result: list[Any] = [{"type": "function_call_output", "call_id": call.call_id, "output": "21 degrees"}]
    second = client.responses.create(previous_response_id=first.id, input=result, **asked)
    assert second.output
    with client.responses.stream(input="The weather in Paris?", tool_choice="required", **asked) as stream:
        for _ in stream:
            pass
        [streamed] = stream.get_final_response().output
    assert streamed.type == "function_call"
    assert (streamed.name, streamed.arguments) == (call.name, call.arguments)


def test_anthropic(server: LiveServer) -> None:
    asked: dict[str, Any] = {
        "model": server.model,
        "max_tokens": 80,
        "messages": QUESTION,
        "tools": [{"name": "get_weather", "description": "The weather.", "input_schema": SCHEMA}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "extra_body": {"temperature": 0},
    }
    with Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=120) as client:
        answer = client.messages.create(**asked)
        [block] = answer.content
        assert block.type == "tool_use"
        assert block.input["unit"] in ("celsius", "fahrenheit")
        assert answer.stop_reason == "tool_use"
        with client.messages.stream(**asked, thinking={"type": "enabled", "budget_tokens": 6}) as stream:
            final = stream.get_final_message()
        assert [block.type for block in final.content] == ["thinking", "tool_use"]
        messages = [
            *QUESTION,
            answer.to_param(),
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": block.id, "content": "21 degrees"}]},
        ]
        count = client.messages.count_tokens(model=server.model, messages=messages, tools=asked["tools"])
        assert count.input_tokens > answer.usage.input_tokens
        said = client.messages.create(**{**asked, "messages": messages, "tool_choice": {"type": "none"}})
        assert said.stop_reason in ("end_turn", "max_tokens")
