"""Tool calls and thinking in chats: what a model says in its own format, whole and streamed."""

import json
from typing import Any

import pytest

from tests.server.openai.conftest import Ask, Stream
from tests.server.openai.fake_serving import FakeServing

PATH = "/v1/chat/completions"
HI = [{"role": "user", "content": "Hi"}]
TEMPLATE = '<tool_call>{"name": ..., "arguments": ...}</tool_call> <think></think>'
SAID = (
    "<think>\nHm.\n</think>\n\nI look.\n"
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich 🙂"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "now"}\n</tool_call>'
)
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}},
    {"type": "function", "function": {"name": "now"}},
]


@pytest.fixture(autouse=True)
def _calling(serving: FakeServing) -> None:
    serving.template, serving.says = TEMPLATE, (SAID,)
    serving.variables = {"tools", "enable_thinking"}


def assembled(chunks: list[dict[str, Any]], index: int = 0) -> dict[str, Any]:
    """The message that a client puts together of a stream."""
    message: dict[str, Any] = {"content": "", "reasoning": "", "calls": []}
    for choice in (choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index):
        delta = choice["delta"]
        message["content"] += delta.get("content") or ""
        assert delta.get("reasoning") == delta.get("reasoning_content")
        message["reasoning"] += delta.get("reasoning") or ""
        for call in delta.get("tool_calls", []):
            if "id" in call:
                assert call["index"] == len(message["calls"])
                assert call["type"] == "function"
                message["calls"].append({"id": call["id"], **call["function"]})
            else:
                message["calls"][call["index"]]["arguments"] += call["function"]["arguments"]
    return message


def test_a_whole_message(ask: Ask, serving: FakeServing) -> None:
    answer = ask(PATH, messages=HI, tools=TOOLS)
    message = answer["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"], message["reasoning"]) == ("I look.", "Hm.", "Hm.")
    assert [call["function"] for call in message["tool_calls"]] == [
        {"name": "get_weather", "arguments": '{"city": "Zürich 🙂"}'},
        {"name": "now", "arguments": "{}"},
    ]
    assert len({call["id"] for call in message["tool_calls"]}) == 2
    assert answer["choices"][0]["finish_reason"] == "tool_calls"
    tokens = serving.tokenizer.encode("<think>\nHm.\n")
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == len(tokens) - len(
        serving.tokenizer.encode("<think>")
    )
    assert [tool["function"]["name"] for tool in serving.rendered[0]["tools"]] == ["get_weather", "now"]


def test_a_stream_says_the_same(ask: Ask, stream: Stream) -> None:
    message = ask(PATH, messages=HI, tools=TOOLS)["choices"][0]["message"]
    chunks = stream(PATH, messages=HI, tools=TOOLS)
    streamed = assembled(chunks)
    assert (streamed["content"], streamed["reasoning"]) == (message["content"], message["reasoning"])
    assert [(call["name"], call["arguments"]) for call in streamed["calls"]] == [
        (call["function"]["name"], call["function"]["arguments"]) for call in message["tool_calls"]
    ]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_choices_do_not_get_mixed_up(ask: Ask, stream: Stream, serving: FakeServing) -> None:
    serving.says = (SAID, "Hello!")
    answer, chunks = ask(PATH, messages=HI, tools=TOOLS, n=2), stream(PATH, messages=HI, tools=TOOLS, n=2)
    assert [choice["finish_reason"] for choice in answer["choices"]] == ["tool_calls", "stop"]
    assert assembled(chunks, 1) == {"content": "Hello!", "reasoning": "", "calls": []}
    assert len(assembled(chunks, 0)["calls"]) == 2


def test_every_token_has_its_logprob_in_a_stream(ask: Ask, stream: Stream) -> None:
    whole = ask(PATH, messages=HI, tools=TOOLS, logprobs=True)["choices"][0]["logprobs"]["content"]
    choices = [chunk["choices"][0] for chunk in stream(PATH, messages=HI, tools=TOOLS, logprobs=True)]
    assert [one for choice in choices if choice["logprobs"] for one in choice["logprobs"]["content"]] == whole


def test_without_tools_a_call_is_text(ask: Ask) -> None:
    for given in ({}, {"tools": TOOLS, "tool_choice": "none"}):
        answer = ask(PATH, messages=HI, **given)["choices"][0]
        assert "<tool_call>" in answer["message"]["content"]
        assert answer["finish_reason"] == "stop"


def test_one_call_at_a_time(ask: Ask) -> None:
    message = ask(PATH, messages=HI, tools=TOOLS, parallel_tool_calls=False)["choices"][0]["message"]
    assert len(message["tool_calls"]) == 1


def test_thinking_that_is_not_wanted(ask: Ask, stream: Stream) -> None:
    message = ask(PATH, messages=HI, tools=TOOLS, include_reasoning=False)["choices"][0]["message"]
    assert "reasoning" not in message
    assert "reasoning_content" not in message
    assert assembled(stream(PATH, messages=HI, include_reasoning=False))["reasoning"] == ""


def test_what_is_bound_goes_to_the_engine(ask: Ask, serving: FakeServing) -> None:
    ask(PATH, messages=HI, tools=TOOLS, tool_choice="required", thinking_token_budget=4)
    ask(PATH, messages=HI, reasoning_effort="none")
    params = serving.calls[0].params
    assert params.structured is not None
    assert params.reasoning is not None
    assert params.reasoning.budget == 4
    assert serving.rendered[1]["variables"] == {"enable_thinking": False}


def test_tools_the_model_cannot_be_shown(ask: Ask, serving: FakeServing) -> None:
    serving.variables = set()
    assert "no place for them" in ask(PATH, 400, messages=HI, tools=TOOLS)["error"]["message"]
    serving.variables, serving.template = {"tools"}, ""
    assert "--tool-parser" in ask(PATH, 400, messages=HI, tools=TOOLS)["error"]["message"]
    ask(PATH, messages=HI, thinking_token_budget=4)
    assert serving.ignored == ["thinking_token_budget"]
    serving.strict = True
    assert ask(PATH, 400, messages=HI, thinking_token_budget=4)["error"]["param"] == "thinking_token_budget"


PATCH = '*** Begin\n"quoted" \\ 🙂\n*** End'
CUSTOM: list[Any] = [{"type": "custom", "custom": {"name": "apply_patch", "description": "Edits."}}, TOOLS[1]]


def test_calls_of_free_text(ask: Ask, stream: Stream, serving: FakeServing) -> None:
    written = [json.dumps({"name": "apply_patch", "arguments": {"input": PATCH}}), '{"name": "now"}']
    written.append('{"name": "apply_patch", "arguments": {"patch": "x"}}')
    serving.says = ("\n".join(f"<tool_call>\n{each}\n</tool_call>" for each in written),)
    choice = ask(PATH, messages=HI, tools=CUSTOM)["choices"][0]
    calls = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls"
    assert [{name: value for name, value in call.items() if name != "id"} for call in calls] == [
        {"type": "custom", "custom": {"name": "apply_patch", "input": PATCH}},
        {"type": "function", "function": {"name": "now", "arguments": "{}"}},
        {"type": "custom", "custom": {"name": "apply_patch", "input": '{"patch": "x"}'}},
    ]
    [shown, _] = serving.rendered[0]["tools"]
    assert shown["function"]["parameters"]["required"] == ["input"]
    deltas = [each["delta"] for chunk in stream(PATH, messages=HI, tools=CUSTOM) for each in chunk["choices"]]
    told = [call for delta in deltas for call in delta.get("tool_calls", [])]
    begun = [call for call in told if "id" in call]
    assert [call["index"] for call in begun] == [0, 1, 2]
    assert begun[0] == {
        "index": 0,
        "id": begun[0]["id"],
        "type": "custom",
        "custom": {"name": "apply_patch", "input": ""},
    }
    inputs = [[call["custom"]["input"] for call in told if call["index"] == index] for index in (0, 2)]
    assert ["".join(each) for each in inputs] == [PATCH, '{"patch": "x"}']
    assert len(inputs[0]) > 3  # it comes while it is written
    back = {"role": "assistant", "content": None, "tool_calls": calls}
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "Done!"} for call in calls]
    ask(PATH, messages=[*HI, back, *results], tools=CUSTOM)
    assistant = serving.conversations[-1][1]
    assert assistant["tool_calls"][0]["function"] == {"name": "apply_patch", "arguments": {"input": PATCH}}


def test_free_text_that_is_asked_for_is_bound(ask: Ask, serving: FakeServing) -> None:
    pattern = {"type": "grammar", "grammar": {"syntax": "regex", "definition": "[0-9]+"}}
    tools = [{"type": "custom", "custom": {"name": "dial", "format": pattern}}]
    ask(PATH, messages=HI, tools=tools)
    ask(PATH, messages=HI, tools=tools, tool_choice={"type": "custom", "custom": {"name": "dial"}})
    for call in serving.calls:
        assert call.params.structured is not None
        assert "^(?:[0-9]+)$" in (call.params.structured.grammar or "")


def test_functions_of_old_are_answered_as_of_old(ask: Ask, stream: Stream) -> None:
    functions = [tool["function"] for tool in TOOLS]
    choice = ask(PATH, messages=HI, functions=functions)["choices"][0]
    call = {"name": "get_weather", "arguments": '{"city": "Zürich 🙂"}'}
    assert (choice["finish_reason"], choice["message"]["function_call"]) == ("function_call", call)
    assert "tool_calls" not in choice["message"]
    choices = [choice for chunk in stream(PATH, messages=HI, functions=functions) for choice in chunk["choices"]]
    pieces = [choice["delta"]["function_call"] for choice in choices if "function_call" in choice["delta"]]
    assert [piece["name"] for piece in pieces if "name" in piece] == ["get_weather"]
    assert "".join(piece["arguments"] for piece in pieces) == call["arguments"]
    assert choices[-1]["finish_reason"] == "function_call"
    assert not any("tool_calls" in choice["delta"] for choice in choices)


def test_calls_and_results_that_are_sent_back(serving: FakeServing, ask: Ask) -> None:
    spoken = ask(PATH, messages=HI, tools=TOOLS)["choices"][0]["message"]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "12"} for call in spoken["tool_calls"]]
    ask(PATH, messages=[*HI, {**spoken, "refusal": None}, *results], tools=TOOLS)
    _, assistant, *results = serving.conversations[1]
    assert (assistant["content"], assistant["reasoning_content"]) == ("I look.", "Hm.")
    assert [call["function"]["arguments"] for call in assistant["tool_calls"]] == [{"city": "Zürich 🙂"}, {}]
    assert [result["role"] for result in results] == ["tool", "tool"]


def test_a_call_that_is_cut_off(ask: Ask, serving: FakeServing) -> None:
    serving.says, serving.reason = (SAID[: SAID.index("Zürich")],), "length"
    answer = ask(PATH, messages=HI, tools=TOOLS)["choices"][0]
    assert answer["finish_reason"] == "length"
    assert answer["message"]["tool_calls"][0]["function"]["arguments"] == '{"city": "'
