"""Bodies of Anthropic's Messages API: what is read, and what is refused by name."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.core.errors import InvalidRequest
from quire.core.structured import StructuredOutput
from quire.protocol.anthropic.body import MESSAGE_FIELDS, ThreadUnsupported, read_count_body, read_messages_body
from quire.protocol.anthropic.schemas import count_body, message_body
from quire.protocol.ignored import Ignored
from quire.protocol.parsers.reasoning_options import ReasoningOptions
from quire.protocol.parsers.tools import Function, Tools

HELLO = {"role": "user", "content": "Hello"}


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "tiny", "max_tokens": 16, "messages": [HELLO], **fields}


def test_everything_that_can_be_asked_for() -> None:
    asked = read_messages_body(
        body(
            system=[
                {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
                {"type": "text", "text": "Be kind.", "citations": None},
            ],
            messages=[{"role": "user", "content": [{"type": "text", "text": "Hello"}]}],
            stop_sequences=["\n\n", "END"],
            temperature=0.5,
            top_p=0.9,
            top_k=40,
            stream=True,
            metadata={"user_id": "u-1"},
            thinking={"type": "disabled"},
            service_tier="standard_only",
            tools=[],
            tool_choice={"type": "none"},
            cache_control={"type": "ephemeral"},
            speed="standard",
        )
    )
    assert asked.conversation.messages == [
        {"role": "system", "content": "Be brief.\nBe kind."},
        {"role": "user", "content": "Hello"},
    ]
    assert not asked.conversation.prefilled
    params = asked.params
    assert (params.max_tokens, params.temperature, params.top_p, params.top_k) == (16, 0.5, 0.9, 40)
    assert params.stop == ("\n\n", "END")
    assert asked.stream
    assert asked.labels == {"metadata.user_id": "u-1"}
    assert params.retain_prefix


def test_an_hour_is_longer_than_usual_wherever_it_is_asked_for() -> None:
    for ttl, retain in (("5m", False), ("1h", True)):
        control = {"cache_control": {"type": "ephemeral", "ttl": ttl}}
        text = {"type": "text", "text": "Hello", **control}
        tool = {"name": "f", "input_schema": {"type": "object"}, **control}
        for marked in (
            control,
            {"system": [text]},
            {"tools": [tool]},
            {"messages": [{"role": "user", "content": [text]}]},
        ):
            assert read_messages_body(body(**marked)).params.retain_prefix == retain


def test_turns_of_one_role_are_joined_and_the_last_of_the_assistant_is_a_prefill() -> None:
    messages = [
        HELLO,
        {"role": "user", "content": "again"},
        {"role": "assistant", "content": [{"type": "text", "text": "The answer is ("}]},
    ]
    found = read_messages_body(body(messages=messages)).conversation
    assert found.prefilled
    assert found.messages == [
        {"role": "user", "content": "Hello\nagain"},
        {"role": "assistant", "content": "The answer is ("},
    ]


def test_empty_prefill_is_none() -> None:
    found = read_messages_body(body(messages=[HELLO, {"role": "assistant", "content": ""}])).conversation
    assert (found.prefilled, found.messages) == (False, [HELLO])


TOOL: dict[str, Any] = {"name": "f", "description": "d", "input_schema": {"type": "object"}}


def test_tools_and_thinking() -> None:
    asked = read_messages_body(
        body(
            tools=[{**TOOL, "type": "custom", "cache_control": {"type": "ephemeral"}}],
            tool_choice={"type": "any", "disable_parallel_tool_use": True},
            thinking={"type": "enabled", "budget_tokens": 50},
        )
    ).conversation
    assert asked.tools == Tools((Function("f", "d", {"type": "object"}),), "required", parallel=False)
    assert asked.reasoning_options == ReasoningOptions(enabled=True, budget=50)
    asked = read_messages_body(body(tools=[TOOL], tool_choice={"type": "tool", "name": "f"})).conversation
    assert (asked.tools.choice, asked.tools.named) == ("required", "f")
    assert read_messages_body(body(thinking={"type": "disabled"})).conversation.reasoning_options == ReasoningOptions(
        enabled=False, is_shown=False
    )


def test_calls_and_results_that_are_sent_back() -> None:
    messages = [
        HELLO,
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm", "signature": ""},
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "warm"}]},
                {"type": "tool_result", "tool_use_id": "t2", "content": "lost", "is_error": True},
                {"type": "text", "text": "And?"},
            ],
        },
    ]
    assert read_messages_body(body(messages=messages)).conversation.messages == [
        {"role": "user", "content": HELLO["content"]},
        {
            "role": "assistant",
            "content": "Let me look.",
            "reasoning_content": "Hm",
            "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "warm"},
        {"role": "tool", "tool_call_id": "t2", "content": "Error: lost"},
        {"role": "user", "content": "And?"},
    ]
    alone = read_messages_body(body(messages=messages[:2])).conversation
    assert not alone.prefilled


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("model", {"model": None}, "model is missing"),
    ("model", {"model": 5}, "text"),
    ("max_tokens", {"max_tokens": None}, "max_tokens is missing"),
    ("max_tokens", {"max_tokens": 0}, "from 1"),
    ("max_tokens", {"max_tokens": True}, "whole number"),
    ("messages", {"messages": []}, "at least one"),
    ("messages", {"messages": "hello"}, "a list"),
    ("messages", {"messages": [HELLO] * 3000}, "at most"),
    ("messages", {"messages": [{"role": "tool", "content": "x"}]}, "one of user, assistant"),
    ("messages", {"messages": [{"content": "x"}]}, "one of user, assistant"),
    ("messages", {"messages": [{"role": "user", "content": ""}]}, "not empty"),
    ("messages", {"messages": [{"role": "assistant", "content": ""}]}, "not empty"),
    ("messages", {"messages": [{"role": "user", "content": None}]}, "text or a list"),
    ("messages", {"messages": [{"role": "user", "content": [{"type": "text", "text": ""}]}]}, "not empty"),
    ("messages", {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "base64"),
    ("messages", {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "tool_use_id"),
    ("messages", {"messages": [{"role": "user", "content": [{"type": "thinking"}]}]}, "of type thinking"),
    ("messages", {"messages": [{"role": "user", "content": [{"type": "document"}]}]}, "of type document"),
    ("messages", {"messages": [{"role": "assistant", "content": [{"type": "tool_use"}]}]}, "tool_use"),
    ("messages", {"messages": [{"role": "user", "content": ["x"]}]}, "type"),
    ("system", {"system": 7}, "text or a list"),
    ("system", {"system": [{"type": "image"}]}, "only text blocks"),
    ("tools", {"tools": [{"name": "f"}]}, "input_schema"),
    ("tools", {"tools": [{"type": "bash_20250124", "name": "bash"}]}, "input_schema yourself"),
    ("tools", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "no tools itself"),
    ("tool_choice", {"tool_choice": {"type": "any"}}, "no tools"),
    ("tool_choice", {"tools": [TOOL], "tool_choice": {"type": "tool"}}, "given with type tool"),
    ("tool_choice", {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}}, "the tools are f"),
    ("thinking", {"thinking": {"type": "disabled", "budget_tokens": 9}}, "left out unless enabled"),
    ("thinking", {"thinking": {}}, "enabled, disabled or adaptive"),
    ("service_tier", {"service_tier": "priority"}, "auto or standard_only"),
    ("speed", {"speed": "fast"}, "standard"),
    ("metadata.other", {"metadata": {"other": "x"}}, "not supported"),
    ("metadata", {"metadata": {"user_id": "x" * 1000}}, "512"),
    ("stop_sequences", {"stop_sequences": "END"}, "a list"),
    ("stop_sequences", {"stop_sequences": [""]}, "1 to"),
    ("stop_sequences", {"stop_sequences": ["x"] * 1000}, "at most"),
    ("temperature", {"temperature": float("nan")}, "a number"),
    ("top_p", {"top_p": 0}, "above 0"),
    ("top_k", {"top_k": "many"}, "whole number"),
    ("stream", {"stream": "yes"}, "true or false"),
    ("cache_control", {"cache_control": {"type": "forever"}}, "ephemeral"),
    ("cache_control", {"cache_control": {"type": "ephemeral", "ttl": "1y"}}, "5m"),
    ("container", {"container": "c"}, "no containers"),
    ("output_config", {"output_config": {"effort": "lots"}}, "one of none"),
    ("output_config", {"output_config": {"format": {"type": "regex"}}}, "json_schema"),
    ("output_config", {"output_config": {"format": {"type": "json_schema"}}}, "a JSON schema"),
    ("mcp_servers", {"mcp_servers": [{"url": "x"}]}, "calls no servers"),
    ("max_token", {"max_token": 3}, "did you mean 'max_tokens'|max_tokens"),
]


@pytest.mark.parametrize(("field", "changed", "message"), REFUSED)
def test_what_cannot_be_honoured_is_refused_by_name(field: str, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as refused:
        read_messages_body(body(**changed), Ignored(strict=True))
    assert refused.value.field == field


def test_counting_takes_the_conversation() -> None:
    asked = body(system="Be brief.")
    del asked["max_tokens"]
    assert read_count_body(asked).messages == [{"role": "system", "content": "Be brief."}, HELLO]
    assert read_count_body({**asked, "temperature": 1.0, "max_tokens": 3}).messages[1] == HELLO


def test_hints_are_taken_and_named() -> None:
    control = {"type": "ephemeral", "scope": "global", "ttl": "1y"}
    tool = {**TOOL, "defer_loading": True, "eager_input_streaming": True, "cache_control": control}
    said = {"type": "text", "text": "Hi", "cache_control": control, "citations": [{"type": "x"}]}
    hints = {
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "betas": ["x"],
        "service_tier": "priority",
        "speed": "fast",
    }
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
    asked = read_messages_body(body(messages=[{"role": "user", "content": [said]}], tools=[tool, search], **hints))
    assert [function.name for function in asked.conversation.tools.functions] == ["f"]
    block = "messages[].content[]"
    assert set(asked.conversation.ignored) == {
        *hints,
        "tools[].web_search_20250305",
        *("tools[].defer_loading", "tools[].eager_input_streaming"),
        *(f"{place}.cache_control.{name}" for place in ("tools[]", block) for name in ("scope", "ttl")),
        f"{block}.citations",
    }


def test_hints_of_another_type_change_nothing() -> None:
    given = {
        "service_tier": 5,
        "metadata": {"user_id": {"a": 1}},
        "output_config": {"effort": "auto"},
        "cache_control": {"type": "forever"},
        "system": [{"type": "text", "text": "x", "cache_control": "yes"}],
    }
    asked = read_messages_body(body(**given))
    names = {"service_tier", "metadata.user_id", "output_config.effort", "cache_control", "system[].cache_control"}
    assert set(asked.conversation.ignored) == names
    assert (asked.labels, asked.conversation.reasoning_options.effort) == ({}, None)
    assert list(read_messages_body(body(metadata="x")).conversation.ignored) == ["metadata"]
    for name, value in given.items():
        with pytest.raises(InvalidRequest, match=name):
            read_messages_body(body(**{name: value}), Ignored(strict=True))


def test_output_config() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    form = {"type": "json_schema", "schema": schema}
    for asked in ({"output_config": {"format": form, "effort": "high"}}, {"output_format": form}):
        assert read_messages_body(body(**asked)).params.structured == StructuredOutput.of(schema)
    options = read_messages_body(body(output_config={"effort": "high"})).conversation.reasoning_options
    assert options.variables({"reasoning_effort"}.__contains__) == {"reasoning_effort": "high"}
    assert options.variables({"thinking"}.__contains__) == {"thinking": True}
    assert options.variables(lambda _: False) == {}
    assert list(options.ignored) == ["output_config.effort"]


def test_tools_that_a_search_found() -> None:
    found = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "tool_reference", "tool_name": "f"}]}
    call = {"type": "tool_use", "id": "t", "name": "search", "input": {}}
    messages = [HELLO, {"role": "assistant", "content": [call]}, {"role": "user", "content": [found]}]
    assert (
        read_messages_body(body(messages=messages)).conversation.messages[-1]["content"] == "The tool f is available."
    )


def test_schemas_list_the_fields_that_are_read() -> None:
    assert set(message_body()["properties"]) == set(MESSAGE_FIELDS)
    assert set(count_body()["properties"]) == set(MESSAGE_FIELDS)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "text", "role", "content", "x"]), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(changed=st.dictionaries(st.sampled_from(MESSAGE_FIELDS), JSON, max_size=3))
def test_any_json_is_read_or_refused(changed: dict[str, Any]) -> None:
    with suppress(InvalidRequest):
        read_messages_body(body(**changed))


@pytest.mark.parametrize("thread", [{"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}])
def test_a_thread_is_refused_because_its_messages_are_not_here(thread: dict[str, str]) -> None:
    for read in (read_messages_body, read_count_body):
        with pytest.raises(ThreadUnsupported, match="send all messages") as caught:
            read(body(thread=thread))
        assert caught.value.field == "thread"
    assert read_messages_body(body(thread=None)).conversation.messages == [HELLO]
