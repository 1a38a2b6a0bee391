"""Messages come out as chat templates read them."""

from typing import Any

import pytest

from quire.core.errors import InvalidRequest
from quire.protocol.ignored import Ignored
from quire.protocol.openai.fields import Fields
from quire.protocol.openai.messages import read_messages

STRICT = Ignored(strict=True)
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}


def read(messages: list[dict[str, Any]], ignored: Ignored = STRICT) -> list[dict[str, Any]]:
    return read_messages(Fields({"messages": messages}, known=("messages",), ignored=ignored))


def test_what_was_not_given_is_left_out() -> None:
    given = {"role": "assistant", "content": "x", "name": None, "tool_calls": None, "refusal": None}
    assert read([given]) == [{"role": "assistant", "content": "x"}]


def test_arguments_of_calls_become_objects() -> None:
    messages = [
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "2", "tool_call_id": "c1"},
    ]
    called, answered = read(messages)
    assert called["content"] is None
    assert called["tool_calls"][0]["function"] == {"name": "add", "arguments": {"a": 1}}
    assert answered == messages[1]


@pytest.mark.parametrize(
    "change",
    [
        {"type": "custom"},
        {"function": None},
        {"function": {"name": "add"}},
        {"function": {"name": "", "arguments": "{}"}},
        {"function": {"name": "add", "arguments": "[1]"}},
        {"function": {"name": "add", "arguments": "{"}},
        {"function": {"name": "add", "arguments": '{"a": ' + "[" * 5000 + "]" * 5000 + "}"}},
        {"function": {"name": "add", "arguments": 5}},
        {"function": {"name": "add", "arguments": "{}", "strict": True}},
        {"index": 0},
    ],
)
def test_broken_calls_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read([{"role": "assistant", "content": "x", "tool_calls": [{**CALL, **change}]}])
    assert "tool_calls[0]" in str(caught.value)


def test_arguments_may_be_an_object() -> None:
    function = {"name": "add", "arguments": {"a": 1}}
    (message,) = read([{"role": "assistant", "tool_calls": [{"function": function}]}])
    assert message["tool_calls"][0]["function"] == function


def test_who_says_nothing() -> None:
    assert read([{"role": "assistant", "content": None}]) == [{"role": "assistant", "content": ""}]
    assert read([{"role": "tool", "tool_call_id": "a"}]) == [{"role": "tool", "content": "", "tool_call_id": "a"}]
    assert read([{"role": "assistant", "content": None, "refusal": "No."}])[0]["content"] == "No."
    for role in ("user", "system"):
        with pytest.raises(InvalidRequest, match="content"):
            read([{"role": role, "content": None}])


def test_what_other_servers_put_into_messages_is_named() -> None:
    extras: dict[str, Any] = {
        "annotations": [{"type": "url_citation"}],
        "audio": {"id": "a"},
        "provider_specific_fields": {"x": 1},
        "thinking_blocks": [{"type": "thinking"}],
        "reasoning_details": [{"type": "reasoning.text"}],
    }
    call = {**CALL, "index": 0, "extra_content": {"google": {}}}
    ignored = Ignored()
    (message,) = read([{"role": "assistant", "content": "x", **extras, "tool_calls": [call]}], ignored)
    assert message == {"role": "assistant", "content": "x", "tool_calls": read(
        [{"role": "assistant", "tool_calls": [CALL]}]
    )[0]["tool_calls"]}  # fmt: skip
    named = {f"messages[].{name}" for name in extras}
    assert set(ignored) == named | {"messages[].tool_calls[].index", "messages[].tool_calls[].extra_content"}


def test_parts() -> None:
    parts = [
        {"type": "thinking", "thinking": "Hm", "signature": "s"},
        {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
        {"type": "refusal", "refusal": "b"},
        {"type": "output_text", "text": "c", "annotations": []},
    ]
    (message,) = read([{"role": "assistant", "content": parts, "cache_control": {"type": "ephemeral"}}], Ignored())
    assert message == {"role": "assistant", "content": "a\nb\nc", "reasoning_content": "Hm"}


def test_calls_of_old_are_calls_and_results() -> None:
    called, answered = read(
        [
            {"role": "assistant", "content": None, "function_call": {"name": "add", "arguments": "{}"}},
            {"role": "function", "name": "add", "content": "2"},
        ]
    )
    (call,) = called["tool_calls"]
    assert (called["content"], "function_call" in called) == (None, False)
    assert call["function"] == {"name": "add", "arguments": {}}
    assert answered == {"role": "tool", "name": "add", "content": "2", "tool_call_id": call["id"]}
