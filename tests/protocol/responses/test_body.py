"""Bodies of the Responses API: what is read, and what is refused by name."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.core.errors import InvalidRequest
from quire.core.structured import StructuredOutput
from quire.protocol.ignored import Ignored
from quire.protocol.parsers.reasoning_options import ReasoningOptions
from quire.protocol.parsers.tools import Function, Tools
from quire.protocol.responses.body import FIELDS, LOGPROBS, read_response_body
from quire.protocol.responses.items import messages_of
from quire.protocol.responses.schemas import create_body


def body(**fields: Any) -> dict[str, Any]:
    return {"input": "Hello", **fields}


def test_text_is_a_message_of_the_user() -> None:
    asked = read_response_body(body())
    (item,) = asked.items
    assert item["content"] == [{"type": "input_text", "text": "Hello"}]
    assert (item["role"], item["type"], item["status"]) == ("user", "message", "completed")
    assert item["id"].startswith("msg_")
    assert (asked.store, asked.stream, asked.truncate, asked.previous) == (True, False, False, None)
    assert asked.params.max_tokens is None


def test_everything_that_can_be_asked_for() -> None:
    asked = read_response_body(
        body(
            model="tiny",
            instructions="Be brief.",
            previous_response_id="resp_1",
            store=False,
            stream=True,
            stream_options={"include_obfuscation": False},
            max_output_tokens=9,
            temperature=0.5,
            top_p=0.9,
            top_logprobs=3,
            include=[LOGPROBS],
            truncation="auto",
            metadata={"k": "v"},
            user="u",
            safety_identifier="s",
            parallel_tool_calls=False,
            text={"format": {"type": "text"}, "verbosity": "medium"},
            tools=[],
            tool_choice="none",
            reasoning={"effort": None},
            background=False,
            service_tier="auto",
            prompt_cache_key="key",
            prompt_cache_retention="in_memory",
            top_k=4,
            min_p=0.1,
            seed=7,
            stop=["END"],
            logit_bias={"5": 1.5},
            min_tokens=2,
            cache_salt="salt",
        )
    )
    params = asked.params
    assert (params.max_tokens, params.logprobs, params.top_k, params.seed) == (9, 3, 4, 7)
    assert (params.stop, params.logit_bias, params.min_tokens, params.cache_salt) == (("END",), {5: 1.5}, 2, "salt")
    assert (asked.store, asked.stream, asked.truncate, asked.previous) == (False, True, True, "resp_1")
    assert asked.labels == {"user": "u", "safety_identifier": "s", "metadata.k": "v"}
    assert asked.echo == {
        "background": False,
        "instructions": "Be brief.",
        "max_output_tokens": 9,
        "metadata": {"k": "v"},
        "parallel_tool_calls": False,
        "previous_response_id": "resp_1",
        "prompt_cache_key": "key",
        "reasoning": {"effort": None, "summary": None},
        "safety_identifier": "s",
        "service_tier": "default",
        "store": False,
        "temperature": 0.5,
        "text": {"format": {"type": "text"}},
        "tool_choice": "none",
        "tools": [],
        "top_logprobs": 3,
        "top_p": 0.9,
        "truncation": "auto",
        "user": "u",
    }


@pytest.mark.parametrize(
    ("fields", "logprobs"),
    [({}, None), ({"top_logprobs": 0}, None), ({"top_logprobs": 2}, 2), ({"include": [LOGPROBS]}, 0)],
)
def test_either_field_asks_for_logprobs(fields: dict[str, Any], logprobs: int | None) -> None:
    assert read_response_body(body(**fields)).params.logprobs == logprobs


def test_items_become_messages_of_a_template() -> None:
    items = [
        {"role": "developer", "content": "Be kind."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": t} for t in ("a", "b")]},
        {
            "type": "message",
            "id": "msg_" + "0" * 48,
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "c", "annotations": [], "logprobs": []}],
        },
        {"role": "system", "content": "Later."},
        {"role": "assistant", "content": "d"},
        {"role": "user", "content": "e"},
    ]
    asked = read_response_body(body(input=items, instructions="Be brief."))
    assert messages_of(asked.instructions, asked.items) == [
        {"role": "system", "content": "Be brief.\n\nBe kind."},
        {"role": "user", "content": "a\nb"},
        {"role": "assistant", "content": "c"},
        {"role": "system", "content": "Later."},
        {"role": "assistant", "content": "d"},
        {"role": "user", "content": "e"},
    ]
    assert asked.items[2]["id"] == "msg_" + "0" * 48
    assert asked.items[4]["content"] == [{"type": "output_text", "text": "d", "annotations": [], "logprobs": []}]


def test_ids_of_items_are_told_apart() -> None:
    same = {"id": "msg_" + "1" * 48, "role": "user", "content": "x"}
    items = read_response_body(body(input=[same, same, {**same, "id": "../x"}])).items
    assert items[0]["id"] == same["id"]
    assert len({item["id"] for item in items}) == 3


def part(**fields: Any) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": [fields]}]}


TOOL = {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}


def test_tools_and_thinking() -> None:
    asked = read_response_body(
        body(
            tools=[TOOL], tool_choice={"type": "function", "name": "f"}, reasoning={"effort": "low", "summary": "auto"}
        )
    )
    assert asked.tools == Tools((Function("f", "d", {"type": "object"}, strict=True),), "required", "f")
    assert asked.reasoning_options == ReasoningOptions(effort="low")
    assert (asked.echo["tools"], asked.echo["reasoning"]["effort"]) == ([TOOL], "low")


def test_calls_and_thinking_that_are_sent_back() -> None:
    items = read_response_body(
        body(
            input=[
                {"role": "user", "content": "Weather?"},
                {
                    "type": "reasoning",
                    "id": "rs_1",
                    "summary": [],
                    "content": [{"type": "reasoning_text", "text": "Hm"}],
                },
                {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}', "status": "completed"},
                {"type": "function_call", "call_id": "c2", "name": "f", "arguments": "broken"},
                {"type": "function_call_output", "call_id": "c1", "output": "warm"},
                {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "cold"}]},
                {"role": "assistant", "content": "Mixed."},
            ]
        )
    ).items
    assert messages_of(None, items) == [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "Hm",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}},
                {"id": "c2", "type": "function", "function": {"name": "f", "arguments": {}}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "warm"},
        {"role": "tool", "tool_call_id": "c2", "content": "cold"},
        {"role": "assistant", "content": "Mixed."},
    ]


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("input", {"input": None}, "text or a list"),
    ("input", {"input": []}, "at least one"),
    ("input", {"input": ["x"]}, "an object"),
    ("input", {"input": [{"role": "user", "content": "x"}] * 3000}, "at most"),
    ("input", {"input": [{"type": "function_call_output", "output": "x"}]}, "call_id"),
    ("input", {"input": [{"type": "function_call_output", "call_id": "1", "output": 5}]}, "output is 5"),
    ("input", {"input": [{"type": "function_call", "call_id": "1", "name": "f"}]}, "arguments"),
    ("input", {"input": [{"type": "function_call", "call_id": "1", "arguments": "{}"}]}, "name"),
    ("input", {"input": [{"type": "reasoning", "content": [{"type": "image"}]}]}, "reasoning_text"),
    ("input", {"input": [{"type": "reasoning", "summary": [], "encrypted_content": 5}]}, "text"),
    ("input", {"input": [{"type": "web_search_call", "id": "ws_1"}]}, "only message"),
    ("input", {"input": [{"type": "local_shell_call", "id": "ls_1"}]}, "only message"),
    ("input", {"input": [{"type": "custom_tool_call", "call_id": "1", "name": "f"}]}, "input is None"),
    ("input", {"input": [{"role": "tool", "content": "x"}]}, "one of user"),
    ("input", {"input": [{"content": "x"}]}, "one of user"),
    ("input", {"input": [{"role": "user"}]}, "text or a list"),
    ("input", {"input": [{"role": "user", "content": []}]}, "1 to"),
    ("input", {"input": [{"role": "user", "content": "x", "status": "odd"}]}, "one of in_progress"),
    ("input", part(type="input_image"), "file_id"),
    ("input", part(type="input_file", file_id="x"), "nothing else"),
    ("input", part(type="output_text", text="x"), "input_text"),
    ("input", part(type="input_text"), "text"),
    ("input", {"input": [{"role": "assistant", "content": [{"type": "refusal"}]}]}, "refusal"),
    ("instructions", {"instructions": ["x"]}, "text"),
    ("tools", {"tools": [{"type": "web_search"}]}, "no tools itself"),
    ("tools", {"tools": [{"type": "local_shell"}]}, "no tools itself"),
    ("tools", {"tools": [{"type": "teleport"}]}, "custom or namespace"),
    ("tools", {"tools": [{"type": "namespace", "name": "n"}]}, "namespace"),
    ("tools", {"tools": [5]}, "custom or namespace"),
    ("tools", {"tools": [{"type": "function", "name": "a b"}]}, "letters, digits"),
    ("tool_choice", {"tool_choice": "perhaps"}, "one of none, auto"),
    ("tool_choice", {"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "mode": "auto"}}, "names of tools"),
    ("tool_choice", {"tool_choice": "required"}, "no tools"),
    ("tool_choice", {"tools": [TOOL], "tool_choice": {"type": "function", "name": "other"}}, "the tools are f"),
    ("background", {"background": True, "store": False}, "store"),
    ("background", {"background": "yes"}, "true or false"),
    ("conversation", {"conversation": ["conv_1"]}, "the id of a conversation"),
    ("conversation", {"conversation": "conv_1", "previous_response_id": "resp_1"}, "leave one out"),
    ("max_tool_calls", {"max_tool_calls": 1}, "not supported"),
    ("prompt", {"prompt": {"id": "p"}}, "stored prompts"),
    ("n", {"n": 2}, "one answer"),
    ("reasoning", {"reasoning": {"effort": "much"}}, "one of none"),
    ("reasoning", {"reasoning": {"summary": "detailed"}}, "nothing else"),
    ("text", {"text": {"format": {"type": "yaml"}}}, "one of"),
    ("text", {"text": {"format": {"type": "text", "schema": {}}}}, "left out"),
    ("text", {"text": {"verbosity": "high"}}, "medium"),
    ("include", {"include": ["file_search_call.results"]}, "logprobs"),
    ("include", {"include": "x"}, "a list"),
    ("top_logprobs", {"top_logprobs": 1000}, "from 0"),
    ("truncation", {"truncation": "middle"}, "one of auto"),
    ("service_tier", {"service_tier": "flex"}, "auto or default"),
    ("prompt_cache_retention", {"prompt_cache_retention": "1y"}, "24h"),
    ("stream_options", {"stream_options": {}}, "unless stream"),
    ("stream_options", {"stream": True, "stream_options": {"include_obfuscation": True}}, "false"),
    ("max_output_tokens", {"max_output_tokens": 0}, "from 1"),
    ("min_tokens", {"max_output_tokens": 5, "min_tokens": 6}, "at most max_output_tokens"),
    ("temperature", {"temperature": -1}, "a number"),
    ("metadata", {"metadata": {"k": 5}}, "text"),
    ("metadata", {"metadata": {str(k): "v" for k in range(17)}}, "at most 16"),
    ("previous_response_id", {"previous_response_id": "x" * 1000}, "characters"),
    ("store", {"store": "yes"}, "true or false"),
    ("messages", {"messages": [1]}, "not supported"),
]


@pytest.mark.parametrize(("field", "changed", "message"), REFUSED)
def test_what_cannot_be_honoured_is_refused_by_name(field: str, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as refused:
        read_response_body(body(**changed), Ignored(strict=True))
    assert refused.value.field == field


def test_hints_are_taken_and_named() -> None:
    hints = {
        "client_metadata": {"x": "y"},
        "service_tier": "priority",
        "prompt_cache_retention": "1y",
        "max_tool_calls": 3,
        "context_management": [{"type": "compaction"}],
        "user": 5,
        "prompt_cache_key": ["k"],
    }
    said = {"text": "x", "type": "output_text", "logprobs": 5}
    more = {
        "input": [{"role": "assistant", "status": "odd", "content": [said]}, {"role": "user", "content": "x"}],
        "text": {"verbosity": 3},
        "reasoning": {"summary": True, "context": "auto", "effort": "auto"},
        "include": ["web_search_call.action.sources", "reasoning.encrypted_content"],
        "tools": [{"type": "web_search", "external_web_access": True}, TOOL],
    }
    asked = read_response_body(body(**hints, **more))
    assert asked.seal
    assert [function.name for function in asked.tools.functions] == ["f"]
    assert set(asked.ignored) == {
        *hints,
        "input[].status",
        "input[].content[].logprobs",
        "text.verbosity",
        "reasoning.summary",
        "reasoning.context",
        "reasoning.effort",
        "include.web_search_call.action.sources",
        "tools[].web_search",
    }


@pytest.mark.parametrize("kind", ["local_shell", "shell", "apply_patch", "computer_use_preview", "code_interpreter"])
def test_tools_that_only_openais_models_know_are_left_out(kind: str) -> None:
    built_in = {"type": kind, "display_width": 1024}
    asked = read_response_body(body(tools=[built_in, TOOL]))
    assert [function.name for function in asked.tools.functions] == ["f"]
    assert list(asked.ignored) == [f"tools[].{kind}"]
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": kind}, {"type": "function", "name": "f"}]}
    asked = read_response_body(body(tools=[built_in, TOOL], tool_choice=allowed))
    assert [function.name for function in asked.tools.functions] == ["f"]
    with pytest.raises(InvalidRequest, match="there are no tools"):
        read_response_body(body(tools=[built_in], tool_choice="required"))


def test_items_of_other_servers_tools_are_left_out() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
    asked = read_response_body(body(input=[{"role": "user", "content": "x", "phase": "commentary"}, search]))
    assert [item["type"] for item in asked.items] == ["message"]
    assert list(asked.ignored) == ["input[].phase", "input[].web_search_call"]


def test_schema_lists_the_fields_that_are_read() -> None:
    assert set(create_body()["properties"]) == set(FIELDS)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "text", "role", "content", "id", "x"]), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(changed=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=3))
def test_any_json_is_read_or_refused(changed: dict[str, Any]) -> None:
    with suppress(InvalidRequest):
        read_response_body(body(**changed))


def test_a_format_becomes_structured_output() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    named = {"type": "json_schema", "name": "n", "strict": True, "schema": schema}
    asked = read_response_body(body(text={"format": named}))
    assert asked.params.structured == StructuredOutput.of(schema)
    assert asked.echo["text"] == {"format": named}
    anything = read_response_body(body(text={"format": {"type": "json_object"}}))
    assert anything.params.structured == StructuredOutput(json_object=True)
    assert read_response_body(body()).params.structured is None


@pytest.mark.parametrize("kind", [{}, [], [{}], 5, True, None])
def test_a_type_that_is_no_text_is_refused(kind: object) -> None:
    """Lists and objects cannot be looked up in tables of names."""
    part = {"type": kind, "text": "Hello"}
    with pytest.raises(InvalidRequest, match=r"content\[0\]"):
        read_response_body(body(input=[{"role": "user", "content": [part]}]))
    if kind is not None:
        with pytest.raises(InvalidRequest, match=r"input\[0\]"):
            read_response_body(body(input=[{"type": kind, "role": "user", "content": "Hello"}]))
