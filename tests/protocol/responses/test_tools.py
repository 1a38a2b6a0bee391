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
    with pytest.raises(openai.BadRequestError, match="reasoning_effort"):
        client.responses.create(model=MODEL, input="Hi", reasoning={"effort": "low"})
    serving.variables.add("reasoning_effort")
    answer = client.responses.create(model=MODEL, input="Hi", reasoning={"effort": "low"})
    assert answer.reasoning is not None
    assert answer.reasoning.effort == "low"
    assert serving.rendered[-1]["variables"] == {"reasoning_effort": "low"}
