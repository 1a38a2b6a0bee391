"""Messages come out as chat templates read them."""

from typing import Any

import pytest

from quire.core.errors import InvalidRequest
from quire.protocol.openai.messages import read_messages

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}


def test_what_was_not_given_is_left_out() -> None:
    given = {"role": "assistant", "content": "x", "name": None, "tool_calls": None, "refusal": None}
    assert read_messages([given]) == [{"role": "assistant", "content": "x"}]


def test_arguments_of_calls_become_objects() -> None:
    messages = [
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "2", "tool_call_id": "c1"},
    ]
    called, answered = read_messages(messages)
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
        {"function": {"name": "add", "arguments": {"a": 1}}},
        {"function": {"name": "add", "arguments": "{}", "strict": True}},
        {"index": 0},
    ],
)
def test_broken_calls_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_messages([{"role": "assistant", "content": "x", "tool_calls": [{**CALL, **change}]}])
    assert "tool_calls[0]" in str(caught.value)


def test_only_an_assistant_that_calls_says_nothing() -> None:
    for message in ({"role": "user", "tool_calls": [CALL]}, {"role": "assistant", "tool_calls": []}):
        with pytest.raises(InvalidRequest, match="content"):
            read_messages([message])
