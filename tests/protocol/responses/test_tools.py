"""Calls and thinking over the Responses API, with OpenAI's own client."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from quire.server.responses.routes import OPERATIONS
from quire.server.store.store import Store
from tests.server.responses.fake_serving import MODEL, FakeServing, app_of, listening

TEMPLATE = '<tool_call>{"name": ..., "arguments": ...}</tool_call> <think></think>'
SAID = [
    "<thi",
    "nk>\nHm.\n</think>\n\nI ",
    'look.\n<tool_call>\n{"name": "get_weather", "argu',
    'ments": {"city": "Zü',
    'rich"}}\n</tool_call>\n<tool_call>\n{"name": "now"}\n</tool_call>',
]
TOOLS: list[Any] = [
    {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}, "strict": False},
    {"type": "function", "name": "now", "parameters": None, "strict": False},
]


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[FakeServing]:
    store = Store(tmp_path)
    serving = FakeServing(store)
    serving.template, serving.variables, serving.pieces = TEMPLATE, {"tools"}, list(SAID)
    yield serving
    store.close()


@pytest.fixture
def client(serving: FakeServing) -> Iterator[openai.OpenAI]:
    with (
        listening(app_of(OPERATIONS, serving)) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


def test_items_of_every_kind(client: openai.OpenAI, serving: FakeServing) -> None:
    answer = client.responses.create(model=MODEL, input="Hi", tools=TOOLS)
    assert [item.type for item in answer.output] == ["reasoning", "message", "function_call", "function_call"]
    thought, message, first, second = (item.model_dump() for item in answer.output)
    assert thought["content"][0]["text"] == "Hm."
    assert message["content"][0]["text"] == answer.output_text == "I look."
    assert (first["name"], json.loads(first["arguments"])) == ("get_weather", {"city": "Zürich"})
    assert (second["name"], second["arguments"], second["status"]) == ("now", "{}", "completed")
    assert first["call_id"] != second["call_id"]
    assert (answer.tool_choice, [tool.name for tool in answer.tools if tool.type == "function"]) == (
        "auto",
        ["get_weather", "now"],
    )
    assert [tool["function"]["name"] for tool in serving.rendered[0]["tools"]] == ["get_weather", "now"]


def test_a_stream_builds_the_same_items(client: openai.OpenAI) -> None:
    whole = client.responses.create(model=MODEL, input="Hi", tools=TOOLS)
    with client.responses.stream(model=MODEL, input="Hi", tools=TOOLS) as stream:
        events = list(stream)
        final = stream.get_final_response()

    def shown(items: Any) -> list[dict[str, Any]]:
        varying = {"id", "call_id", "parsed", "parsed_arguments"}
        return [
            {name: value for name, value in item.model_dump(exclude_none=True).items() if name not in varying}
            for item in items
        ]

    assert json.dumps(shown(final.output), default=str).replace(', "parsed": null', "") == json.dumps(
        shown(whole.output), default=str
    )
    added = [event.item.type for event in events if event.type == "response.output_item.added"]
    done = [event.item.type for event in events if event.type == "response.output_item.done"]
    assert added == done == ["reasoning", "message", "function_call", "function_call"]
    arguments = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert "".join(arguments) == '{"city": "Zürich"}{}'
    thoughts = [event.delta for event in events if event.type == "response.reasoning_text.delta"]
    assert "".join(thoughts) == "Hm."
    numbers = [event.sequence_number for event in events if hasattr(event, "sequence_number")]
    assert numbers == sorted(numbers)


def test_results_are_sent_back(client: openai.OpenAI, serving: FakeServing) -> None:
    first = client.responses.create(model=MODEL, input="Hi", tools=TOOLS)
    calls = [item for item in first.output if item.type == "function_call"]
    results: list[Any] = [
        {"type": "function_call_output", "call_id": call.call_id, "output": "12 degrees"} for call in calls
    ]
    serving.pieces = ["It is warm."]
    # with what is stored, and with all of it in the input
    client.responses.create(model=MODEL, previous_response_id=first.id, input=results, tools=TOOLS)
    spoken: list[Any] = [item.model_dump(exclude_none=True) for item in first.output]
    client.responses.create(model=MODEL, input=[{"role": "user", "content": "Hi"}, *spoken, *results], tools=TOOLS)
    for rendered in serving.rendered[1:]:
        user, assistant, *tools = rendered["messages"]
        assert (user["role"], assistant["content"], assistant["reasoning_content"]) == ("user", "I look.", "Hm.")
        assert [call["function"]["arguments"] for call in assistant["tool_calls"]] == [{"city": "Zürich"}, {}]
        assert [tool["tool_call_id"] for tool in tools] == [call.call_id for call in calls]


def test_an_answer_of_nothing_is_an_empty_message(client: openai.OpenAI, serving: FakeServing) -> None:
    serving.pieces = ["\n"]
    answer = client.responses.create(model=MODEL, input="Hi", tools=TOOLS)
    assert [item.type for item in answer.output] == ["message"]
    serving.pieces, serving.finish_reason = SAID[:3], "length"
    answer = client.responses.create(model=MODEL, input="Hi", tools=TOOLS)
    assert (answer.status, answer.output[-1].type) == ("incomplete", "function_call")
    assert answer.output[-1].model_dump()["status"] == "incomplete"


def test_what_is_bound_goes_to_the_engine(client: openai.OpenAI, serving: FakeServing) -> None:
    choice: Any = {"type": "function", "name": "now"}
    answer = client.responses.create(model=MODEL, input="Hi", tools=TOOLS, tool_choice=choice)
    assert serving.calls[0].params.structured is not None
    assert answer.model_dump()["tool_choice"] == choice
    client.responses.create(model=MODEL, input="Hi", reasoning={"effort": "low"})
    assert serving.ignored == ["reasoning.effort"]
    serving.strict = True
    with pytest.raises(openai.BadRequestError, match="reasoning_effort"):
        client.responses.create(model=MODEL, input="Hi", reasoning={"effort": "low"})
    serving.variables.add("reasoning_effort")
    answer = client.responses.create(model=MODEL, input="Hi", reasoning={"effort": "low"})
    assert answer.reasoning is not None
    assert answer.reasoning.effort == "low"
    assert serving.rendered[-1]["variables"] == {"reasoning_effort": "low"}


def test_thinking_comes_back_sealed(client: openai.OpenAI, serving: FakeServing) -> None:
    asked: dict[str, Any] = {
        "model": MODEL,
        "tools": TOOLS,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    with client.responses.stream(input="Hi", **asked) as stream:
        done = [event.item for event in stream if event.type == "response.output_item.done"]
    for thought in (done[0], client.responses.create(input="Hi", **asked).output[0]):
        assert thought.type == "reasoning"
        sealed = thought.encrypted_content
        assert sealed
        item: Any = {"type": "reasoning", "id": thought.id, "summary": [], "encrypted_content": sealed}
        said: Any = {"role": "assistant", "content": "I look."}
        client.responses.create(input=[item, said, {"role": "user", "content": "Go on"}], **asked)
        assert serving.rendered[-1]["messages"][0]["reasoning_content"] == "Hm."
        with pytest.raises(openai.BadRequestError, match="encrypted_content"):
            client.responses.create(input=[{**item, "encrypted_content": sealed[:-6] + "AAAAA="}, said], **asked)
    assert client.responses.create(model=MODEL, input="Hi").output[0].model_dump()["encrypted_content"] is None


PATCH = '*** Begin Patch\n"quoted"\n*** End Patch'
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}
CUSTOM: list[Any] = [
    {"type": "custom", "name": "apply_patch", "description": "Edit files.", "format": GRAMMAR},
    {
        "type": "namespace",
        "name": "mcp__files",
        "description": "Files.",
        "tools": [{"type": "function", "name": "read", "parameters": {"type": "object"}, "strict": False}],
    },
]


def called(name: str, **arguments: str) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>\n"


def test_tools_of_free_text_and_of_namespaces(client: openai.OpenAI, serving: FakeServing) -> None:
    text = called("apply_patch", input=PATCH) + called("mcp__files.read", path="a")
    serving.pieces = [text[:40], text[40:]]
    with client.responses.stream(model=MODEL, input="Hi", tools=CUSTOM) as stream:
        events = list(stream)
    shown = [tool["function"] for tool in serving.rendered[0]["tools"]]
    assert [function["name"] for function in shown] == ["apply_patch", "mcp__files.read"]
    assert "start: /.+/" in shown[0]["description"]
    deltas = [event.delta for event in events if event.type == "response.custom_tool_call_input.delta"]
    assert "".join(deltas) == PATCH
    answer = client.responses.create(model=MODEL, input="Hi", tools=CUSTOM)
    patch, read = (item.model_dump() for item in answer.output)
    assert (patch["type"], patch["name"], patch["input"]) == ("custom_tool_call", "apply_patch", PATCH)
    assert (read["type"], read["namespace"], read["name"]) == ("function_call", "mcp__files", "read")
    assert serving.ignored == ["tools[].format"] * 2
    back: list[Any] = [item.model_dump(exclude_none=True) for item in answer.output]
    results: list[Any] = [
        {"type": "custom_tool_call_output", "call_id": patch["call_id"], "output": "Done!"},
        {"type": "function_call_output", "call_id": read["call_id"], "output": "text"},
    ]
    client.responses.create(model=MODEL, input=[*back, *results], tools=CUSTOM)
    assistant, *tools = serving.rendered[-1]["messages"]
    assert [call["function"] for call in assistant["tool_calls"]] == [
        {"name": "apply_patch", "arguments": {"input": PATCH}},
        {"name": "mcp__files.read", "arguments": {"path": "a"}},
    ]
    assert [tool["content"] for tool in tools] == ["Done!", "text"]


def test_input_that_the_model_wrote_otherwise_stands_as_it_is(client: openai.OpenAI, serving: FakeServing) -> None:
    serving.pieces = [called("apply_patch", patch="x")]
    answer = client.responses.create(model=MODEL, input="Hi", tools=CUSTOM)
    assert json.loads(answer.output[0].model_dump()["input"]) == {"patch": "x"}


def test_a_tool_of_free_text_can_be_asked_for(client: openai.OpenAI, serving: FakeServing) -> None:
    for choice in (
        {"type": "custom", "name": "apply_patch"},
        {"type": "function", "name": "read", "namespace": "mcp__files"},
    ):
        client.responses.create(model=MODEL, input="Hi", tools=CUSTOM, tool_choice=choice)  # type: ignore[arg-type]
        assert serving.calls[-1].params.structured is not None


def test_only_allowed_tools_are_shown(client: openai.OpenAI, serving: FakeServing) -> None:
    choice: Any = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "now"}]}
    answer = client.responses.create(model=MODEL, input="Hi", tools=TOOLS, tool_choice=choice)
    assert [tool["function"]["name"] for tool in serving.rendered[0]["tools"]] == ["now"]
    assert len(answer.tools) == 2


def test_items_are_referred_to(client: openai.OpenAI, serving: FakeServing) -> None:
    first = client.responses.create(model=MODEL, input="Hi", tools=TOOLS)
    references: list[Any] = [{"type": "item_reference", "id": item.id} for item in first.output]
    asked: list[Any] = [{"role": "user", "content": "Hi"}, *references]
    client.responses.create(model=MODEL, input=asked, tools=TOOLS)
    _, assistant = serving.rendered[-1]["messages"]
    assert (assistant["content"], assistant["reasoning_content"]) == ("I look.", "Hm.")
    assert len(assistant["tool_calls"]) == 2
    client.responses.delete(first.id)
    for gone in (references, [{"type": "item_reference", "id": "msg_" + "0" * 48}]):
        with pytest.raises(openai.BadRequestError, match="no stored item"):
            client.responses.create(model=MODEL, input=gone, tools=TOOLS)
