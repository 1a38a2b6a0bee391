"""Calls and thinking over the Messages API, with Anthropic's own client."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest

from quire.server.anthropic import OPERATIONS
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
    {"name": "get_weather", "description": "The weather.", "input_schema": {"type": "object"}},
    {"name": "now", "input_schema": {"type": "object"}},
]
ASKED: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 50,
    "messages": [{"role": "user", "content": "Hi"}],
    "tools": TOOLS,
}


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[FakeServing]:
    store = Store(tmp_path)
    serving = FakeServing(store)
    serving.template, serving.variables, serving.pieces = TEMPLATE, {"tools", "enable_thinking"}, list(SAID)
    yield serving
    store.close()


@pytest.fixture
def client(serving: FakeServing) -> Iterator[anthropic.Anthropic]:
    with (
        listening(app_of(OPERATIONS, serving)) as url,
        anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client,
    ):
        yield client


def test_blocks_of_every_kind(client: anthropic.Anthropic, serving: FakeServing) -> None:
    answer = client.messages.create(**ASKED)
    assert [block.type for block in answer.content] == ["thinking", "text", "tool_use", "tool_use"]
    thought, text, first, second = (block.model_dump() for block in answer.content)
    assert (thought["thinking"], text["text"]) == ("Hm.", "I look.")
    assert (first["name"], first["input"]) == ("get_weather", {"city": "Zürich"})
    assert (second["name"], second["input"]) == ("now", {})
    assert first["id"] != second["id"]
    assert answer.stop_reason == "tool_use"
    shown = serving.rendered[0]["tools"]
    assert shown[0]["function"] == {
        "name": "get_weather",
        "description": "The weather.",
        "parameters": {"type": "object"},
    }


def test_a_stream_builds_the_same_blocks(client: anthropic.Anthropic) -> None:
    whole = client.messages.create(**ASKED)
    with client.messages.stream(**ASKED) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()

    def shown(message: anthropic.types.Message) -> list[dict[str, Any]]:
        return [block.model_dump(exclude={"id"}, exclude_none=True) for block in message.content]

    assert shown(final) == shown(whole)
    assert final.stop_reason == "tool_use"
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 4


def test_results_are_sent_back(client: anthropic.Anthropic, serving: FakeServing) -> None:
    first = client.messages.create(**ASKED)
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": "12 degrees"}
        for block in first.content
        if block.type == "tool_use"
    ]
    serving.pieces = ["It is warm."]
    messages = [*ASKED["messages"], first.to_param(), {"role": "user", "content": results}]
    answer = client.messages.create(**{**ASKED, "messages": messages})
    assert answer.stop_reason == "end_turn"
    user, assistant, *tools = serving.rendered[1]["messages"]
    assert (user["role"], assistant["content"], assistant["reasoning_content"]) == ("user", "I look.", "Hm.")
    assert [call["function"]["arguments"] for call in assistant["tool_calls"]] == [{"city": "Zürich"}, {}]
    assert [tool["role"] for tool in tools] == ["tool", "tool"]


@pytest.mark.parametrize(
    ("thinking", "variables", "kinds"),
    [
        ({"type": "enabled", "budget_tokens": 1024}, {"enable_thinking": True}, ["thinking", "text"]),
        ({"type": "disabled"}, {"enable_thinking": False}, ["text"]),
        ({"type": "adaptive"}, {}, ["thinking", "text"]),
    ],
)
def test_thinking(
    client: anthropic.Anthropic, serving: FakeServing, thinking: Any, variables: dict[str, Any], kinds: list[str]
) -> None:
    serving.pieces = ["<think>Hm.</think>", "Hello"]
    answer = client.messages.create(**{**ASKED, "max_tokens": 2000}, thinking=thinking)
    assert [block.type for block in answer.content] == kinds
    assert serving.rendered[0]["variables"] == variables
    part = serving.calls[0].params.reasoning
    assert (None if part is None else part.budget) == thinking.get("budget_tokens")


def test_thinking_without_a_model_that_thinks(client: anthropic.Anthropic, serving: FakeServing) -> None:
    serving.template = ""
    asked = {**ASKED, "tools": []}
    client.messages.create(**asked, thinking={"type": "enabled", "budget_tokens": 1024})
    assert serving.ignored == ["thinking.budget_tokens"]
    serving.strict = True
    with pytest.raises(anthropic.BadRequestError, match="does not think"):
        client.messages.create(**asked, thinking={"type": "enabled", "budget_tokens": 1024})
    client.messages.create(**asked, thinking={"type": "disabled"})


def test_what_is_bound_goes_to_the_engine(client: anthropic.Anthropic, serving: FakeServing) -> None:
    for choice in ({"type": "any"}, {"type": "tool", "name": "now"}, {"type": "auto"}):
        client.messages.create(**ASKED, tool_choice=choice)
    assert [call.params.structured is None for call in serving.calls] == [False, False, True]


def test_a_call_that_is_cut_off(client: anthropic.Anthropic, serving: FakeServing) -> None:
    serving.pieces, serving.finish_reason = SAID[:4], "length"
    answer = client.messages.create(**{**ASKED, "max_tokens": 4})
    assert answer.stop_reason == "max_tokens"
    assert answer.content[-1].model_dump()["input"] == {}
