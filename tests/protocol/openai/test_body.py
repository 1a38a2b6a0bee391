"""A field of a body is honoured or refused by name."""

from typing import Any

import pytest

from quire.core.errors import InvalidRequest
from quire.core.sampling_params import SamplingParams
from quire.core.structured import StructuredOutput
from quire.protocol.ignored import Ignored
from quire.protocol.openai.body import read_chat_body, read_completion_body
from quire.protocol.openai.options import AnswerOptions
from quire.protocol.parsers.tools import Function, Tools

USER = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "get_time"}}

LARK = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: /.+/"}}
REGEX = {"type": "grammar", "grammar": {"syntax": "regex", "definition": "[a-z]+|none"}}


def called(kind: str, described: dict[str, Any]) -> dict[str, Any]:
    """An assistant's message with a call."""
    return {"role": "assistant", "tool_calls": [{"id": "c", "type": kind, kind: described}]}


def test_plain_chat() -> None:
    body = read_chat_body({"model": "m", "messages": [USER]})
    assert body.model == "m"
    assert body.messages == [USER]
    # an answer ends when the model ends it
    assert body.params == SamplingParams(max_tokens=None)
    assert body.add_generation_prompt


def test_plain_completion() -> None:
    body = read_completion_body({"prompt": "Hi"})
    assert (body.model, body.prompts, body.params) == (None, ["Hi"], SamplingParams())


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"temperature": 0.5, "top_p": 0.9, "n": 2}, {"temperature": 0.5, "top_p": 0.9, "n": 2}),
        ({"stop": "x"}, {"stop": ("x",)}),
        ({"stop": ["x", "y"], "seed": 3}, {"stop": ("x", "y"), "seed": 3}),
        ({"logit_bias": {"5": -100}}, {"logit_bias": {5: -100}}),
        ({"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1}, {"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1}),
        ({"max_tokens": 7}, {"max_tokens": 7}),
        ({"prompt_cache_retention": "24h"}, {"retain_prefix": True}),
        ({"prompt_cache_retention": "in_memory"}, {}),
        ({"prompt_cache_retention": None}, {}),
        ({"temperature": None, "stop": None, "stream": False}, {}),
    ],
)
def test_sampling_fields(given: dict[str, Any], expected: dict[str, Any]) -> None:
    defaults: dict[str, Any] = {"max_tokens": None}
    assert read_chat_body({"messages": [USER], **given}).params == SamplingParams(**(defaults | expected))
    assert read_completion_body({"prompt": "x", **given}).params == SamplingParams(**expected)


def test_chat_lengths_and_logprobs() -> None:
    assert read_chat_body({"messages": [USER], "max_completion_tokens": 9}).params.max_tokens == 9
    assert read_chat_body({"messages": [USER], "logprobs": True}).params.logprobs == 0
    assert read_chat_body({"messages": [USER], "logprobs": True, "top_logprobs": 4}).params.logprobs == 4
    assert read_chat_body({"messages": [USER], "logprobs": False}).params.logprobs is None
    assert read_completion_body({"prompt": "x", "logprobs": 3}).params.logprobs == 3


def test_going_on_with_a_message_begins_no_other() -> None:
    body = read_chat_body({"messages": [USER], "continue_final_message": True})
    assert (body.continue_final_message, body.add_generation_prompt) == (True, False)


def test_whole_numbers_may_be_written_with_a_point() -> None:
    body = read_completion_body({"prompt": [[1.0, 2]], "n": 2.0, "max_tokens": 7.0, "seed": 3.0, "temperature": 1.0})
    assert body.prompts == [[1, 2]]
    assert body.params == SamplingParams(n=2, max_tokens=7, seed=3)
    assert {type(each) for each in (body.params.n, body.params.max_tokens, body.prompts[0][0])} == {int}


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [("a", ["a"]), (["a", "b"], ["a", "b"]), ([1, 2], [[1, 2]]), ([[1], [2, 3]], [[1], [2, 3]]), ("", [""])],
)
def test_prompts(prompt: Any, expected: list[Any]) -> None:
    assert read_completion_body({"prompt": prompt}).prompts == expected


def test_parts_of_text_are_put_together() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert read_chat_body({"messages": [{"role": "user", "content": parts}]}).messages[0]["content"] == "a\nb"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"temprature": 1}, "temprature"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"user": 5}, "user"),
        ({"functions": 5}, "functions"),
        ({"functions": [{"name": "a b"}]}, "functions"),
        ({"functions": [{"name": "f"}], "tools": [TOOL]}, "functions"),
        ({"functions": [{"name": "f"}], "function_call": {"name": "g"}}, "function_call"),
        ({"functions": [{"name": "f"}], "function_call": "required"}, "function_call"),
        ({"use_beam_search": "yes"}, "use_beam_search"),
        ({"prompt": "x"}, "prompt"),
        ({"repeat_penalty": 1.1}, "repeat_penalty"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"chat_template": "{{ messages }}"}, "chat_template"),
        ({"audio": {"voice": "alloy"}}, "audio"),
        ({"store": True}, "store"),
        ({"modalities": ["audio"]}, "modalities"),
        ({"service_tier": "flex"}, "service_tier"),
        ({"prompt_cache_key": "x"}, "prompt_cache_key"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"include_obfuscation": True}}, "stream_options"),
        ({"stream": True, "prompt_logprobs": 1}, "prompt_logprobs"),
        ({"request_id": "a b"}, "request_id"),
        ({"metadata": {"a": 5}}, "metadata"),
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"temperature": 10**400}, "temperature"),
        ({"n": 1, "best_of": 2}, "best_of"),
        ({"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "high"}}, "reasoning_effort"),
        ({"documents": ["x"]}, "documents"),
        ({"tools": ["x"], "tool_choice": "none"}, "tools"),
        ({"messages": [USER] * 2049}, "messages"),
        ({"response_format": {"type": "yaml"}}, "response_format"),
        ({"tool_choice": "any"}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "other"}}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "a", "parameters": 5}}]}, "tools"),
        ({"tools": [{"type": "custom", "custom": {"name": "a b"}}]}, "tools"),
        ({"tools": [{"type": "custom", "custom": {"name": "a", "format": {"type": "grammar"}}}]}, "tools"),
        ({"tools": [{"type": "custom", "custom": {"name": "a", "format": LARK}}]}, "tools"),
        ({"tools": [{"type": "custom"}]}, "tools"),
        ({"tools": [{"type": "teleport"}]}, "tools"),
        ({"tools": [TOOL], "tool_choice": {"type": "custom", "custom": {"name": "other"}}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "teleport"}}, "tool_choice"),
        ({"messages": [called("custom", {"name": "f"})]}, "messages"),
        ({"messages": [called("custom", {"input": "x"})]}, "messages"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"type": "teleport"}]}]}, "messages"),
        ({"thinking_token_budget": -1}, "thinking_token_budget"),
        ({"include_reasoning": "yes"}, "include_reasoning"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"n": 1.5}, "n"),
        ({"n": True}, "n"),
        ({"stop": {"a": 1}}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1, "max_completion_tokens": 2}, "max_completion_tokens"),
        ({"logprobs": 3}, "logprobs"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"1": "x"}}, "logit_bias"),
        ({"logit_bias": [1]}, "logit_bias"),
        ({"model": 5}, "model"),
        ({"stream": "no"}, "stream"),
        ({"messages": []}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": ["Hi"]}, "messages"),
        ({"messages": [{"role": "usr", "content": "Hi"}]}, "messages"),
        ({"messages": [{"role": "the king", "content": "Hi"}]}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
        ({"messages": [{**USER, "mood": "good"}]}, "messages[0].mood"),
        ({"chat_template_kwargs": 5}, "chat_template_kwargs"),
    ],
)
def test_what_is_not_honoured_is_refused(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_chat_body({"messages": [USER], **given}, Ignored(strict=True))
    assert caught.value.field == field
    assert field.rpartition(".")[2] in str(caught.value)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": {"a": 1}}, "prompt"),
        ({"echo": True, "stream": True, "logprobs": 1}, "echo"),
        ({"echo": True, "logprobs": 1, "prompt_logprobs": 2}, "prompt_logprobs"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 0, "echo": True, "min_tokens": 1}, "min_tokens"),
        ({"stream": True, "best_of": 2}, "best_of"),
        ({"prompt": ["x"] * 2049}, "prompt"),
        ({"prompt": ["x"] * 100, "n": 100}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [[1], [1 << 31]]}, "prompt"),
        ({"suffix": 1}, "suffix"),
        ({"suffix": "x", "truncate_prompt_tokens": 5}, "truncate_prompt_tokens"),
        ({"suffix": "x", "use_beam_search": True}, "suffix"),
        ({"messages": [USER]}, "messages"),
        ({"best_of": 0}, "best_of"),
    ],
)
def test_what_a_completion_refuses(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_completion_body({"prompt": "x", **given})
    assert caught.value.field == field


def test_prompts_alone_are_asked_for_with_one_token_that_is_left_out() -> None:
    body = read_completion_body({"prompt": "x", "echo": True, "max_tokens": 0, "logprobs": 2})
    assert body.options.prompt_only
    assert body.options.echo
    assert not body.options.prompt_logprobs
    assert (body.params.max_tokens, body.params.logprobs, body.params.prompt_logprobs) == (1, 2, 2)


def test_what_the_answer_looks_like() -> None:
    given = {
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True, "include_obfuscation": False},
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        "service_tier": "auto",
        "request_id": "mine:1",
    }
    expected = AnswerOptions(
        include_usage=True,
        continuous_usage=True,
        token_ids=True,
        tokens_as_ids=True,
        service_tier="default",
        request_id="mine:1",
    )
    assert read_chat_body({"messages": [USER], **given}).options == expected
    assert read_completion_body({"prompt": "x", **given}).options == expected


def test_who_it_is_for() -> None:
    given = {"user": "u", "safety_identifier": "s", "metadata": {"team": "t"}, "store": False}
    assert read_chat_body({"messages": [USER], **given}).labels == {
        "user": "u",
        "safety_identifier": "s",
        "metadata.team": "t",
    }


def test_tools_that_may_not_be_called_are_left_out() -> None:
    for given in ({"tools": []}, {"tools": [TOOL], "tool_choice": "none"}):
        body = read_chat_body({"messages": [USER], **given})
        assert not body.tools.are_offered
        assert body.rendering(lambda _: False)["tools"] is None


def test_tools_as_they_were_given() -> None:
    described = {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}
    tools = [{"type": "function", "function": described}, TOOL]
    named = {"type": "function", "function": {"name": "f"}}
    body = read_chat_body({"messages": [USER], "tools": tools, "tool_choice": named, "parallel_tool_calls": False})
    function = Function("f", "d", {"type": "object"}, strict=True)
    assert body.tools == Tools((function, Function("get_time")), "required", "f", parallel=False)
    shown = body.rendering({"tools"}.__contains__)["tools"]
    assert [tool["function"]["name"] for tool in shown] == ["f", "get_time"]
    assert read_chat_body({"messages": [USER], "tools": [TOOL]}).tools.choice == "auto"


def test_tools_need_a_template_that_shows_them_and_names_of_their_own() -> None:
    body = read_chat_body({"messages": [USER], "tools": [TOOL]})
    with pytest.raises(InvalidRequest, match="chat template has no place") as caught:
        body.rendering(lambda _: False)
    assert caught.value.field == "tools"
    twice = read_chat_body({"messages": [USER], "tools": [TOOL, TOOL]})
    with pytest.raises(InvalidRequest, match="'get_time'"):
        twice.rendering(lambda _: True)


def test_thinking_is_turned_off_where_the_template_can() -> None:
    body = read_chat_body({"messages": [USER], "reasoning_effort": "none"})
    assert body.rendering({"enable_thinking"}.__contains__)["variables"] == {"enable_thinking": False}
    assert body.rendering({"thinking"}.__contains__)["variables"] == {"thinking": False}
    assert body.rendering({"reasoning_effort"}.__contains__)["variables"] == {"reasoning_effort": "none"}
    assert body.rendering(lambda _: False)["variables"] == {}
    assert list(body.ignored) == ["reasoning_effort"]


@pytest.mark.parametrize(
    "given",
    [
        {"enable_thinking": True},
        {"chat_template_kwargs": {"enable_thinking": True}},
        {"chat_template_kwargs": {"thinking": True}},
        {"reasoning_effort": "medium"},
        {"reasoning": {"effort": "high"}},
        {"reasoning": {"enabled": True}},
        {"thinking": {"type": "enabled"}},
    ],
)
def test_all_words_for_thinking_reach_the_templates_own_switch(given: dict[str, Any]) -> None:
    for switch in ("enable_thinking", "thinking"):
        body = read_chat_body({"messages": [USER], **given})
        assert body.rendering({switch}.__contains__)["variables"] == {switch: True}
        assert not body.ignored.header()
    body = read_chat_body({"messages": [USER], **given})
    assert body.rendering(lambda _: False)["variables"] == {}
    assert len(list(body.ignored)) == 1
    strict = read_chat_body({"messages": [USER], **given}, Ignored(strict=True))
    with pytest.raises(InvalidRequest, match="does not read"):
        strict.rendering(lambda _: False)


def test_budgets_and_silence_by_other_names() -> None:
    openrouter = read_chat_body({"messages": [USER], "reasoning": {"max_tokens": 100, "exclude": True}})
    assert (openrouter.reasoning_options.budget, openrouter.reasoning_options.is_shown) == (100, False)
    anthropic = read_chat_body({"messages": [USER], "thinking": {"type": "enabled", "budget_tokens": 9}})
    assert anthropic.reasoning_options.budget == 9


def test_template_variables_must_be_read_by_the_template() -> None:
    body = read_chat_body(
        {
            "messages": [USER],
            "reasoning_effort": "low",
            "chat_template_kwargs": {"a": [1]},
            "documents": [{"text": "d"}],
        },
        Ignored(strict=True),
    )
    variables = body.rendering({"a", "reasoning_effort", "documents"}.__contains__)["variables"]
    assert variables == {"a": [1], "reasoning_effort": "low"}
    fields = {"a": "chat_template_kwargs", "reasoning_effort": "reasoning_effort", "documents": "documents"}
    for missing, field in fields.items():
        with pytest.raises(InvalidRequest, match="chat template") as caught:
            body.rendering(set(fields).difference({missing}).__contains__)
        assert caught.value.field == field


def test_free_form_values_are_bounded() -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    for value in (deep, {"a": deep}, list(range(20_000)), 1 << 64, {"a": [-(1 << 64)]}):
        with pytest.raises(InvalidRequest) as caught:
            read_chat_body({"messages": [USER], "chat_template_kwargs": {"x": value}})
        assert caught.value.field == "chat_template_kwargs"
    shallow = {"x": [[[{"a": [1, None, "b", 1.5, True]}]]]}
    assert read_chat_body({"messages": [USER], "chat_template_kwargs": shallow}).reasoning_options.given == shallow


def test_near_misses_are_guessed() -> None:
    with pytest.raises(InvalidRequest, match="Did you mean 'temperature'"):
        read_chat_body({"messages": [USER], "temprature": 1}, Ignored(strict=True))


def test_hints_and_what_is_unknown_are_taken_and_named() -> None:
    hints = {
        "prompt_cache_key": "k",
        "verbosity": "low",
        "service_tier": "flex",
        "store": True,
        "prediction": {"type": "content", "content": "x"},
        "provider": {"order": ["a"]},
        "num_ctx": 8192,
        "metadata": {"k": 5},
        "web_search_options": {},
        "user": {"id": 5},
        "safety_identifier": "x" * 1000,
        "reasoning_effort": "auto",
        "prompt_cache_retention": 5,
    }
    body = read_chat_body({"messages": [{**USER, "mood": "good"}, {**USER, "mood": "bad"}], **hints})
    named = {*hints, "messages[].mood", "metadata.k"} - {"metadata"}
    assert set(body.ignored) == named
    assert set(body.ignored.header().split(", ")) == named
    assert body.reasoning_options.effort is None
    assert body.labels == {}
    assert not body.params.retain_prefix
    more = {"reasoning": {"effort": 5}, "metadata": ["x"], "stream": True, "stream_options": {"include_obfuscation": 1}}
    body = read_chat_body({"messages": [USER], **more, "chat_template_kwargs": {"reasoning_effort": "auto"}})
    assert set(body.ignored) == {"reasoning.effort", "metadata", "stream_options.include_obfuscation"}
    body = read_chat_body({"messages": [USER], "metadata": {"k" * 65: "v", "a": "b"}})
    assert (list(body.ignored), body.labels) == (["metadata"], {})


def test_options_of_a_stream_need_a_stream() -> None:
    with pytest.raises(InvalidRequest, match="unless stream is true"):
        read_chat_body({"messages": [USER], "stream_options": {"include_usage": True}})


def test_tools_of_the_servers_own_are_left_out() -> None:
    body = read_chat_body({"messages": [USER], "tools": [{"type": "web_search_preview"}, TOOL]})
    assert [function.name for function in body.tools.functions] == ["get_time"]
    assert list(body.ignored) == ["tools[].web_search_preview"]


@pytest.mark.parametrize(
    ("given", "grammar"),
    [
        ({"custom": {"name": "run", "description": "Runs.", "format": LARK}}, "grammar:\nstart: /.+/"),
        ({"custom": {"name": "run", "description": "Runs.", "format": REGEX}}, "regular expression:\n[a-z]+|none"),
        ({"custom": {"name": "run", "description": "Runs.", "format": {"type": "text"}}}, None),
        ({"name": "run", "description": "Runs."}, None),  # as responses have it
        ({"name": "run", "description": "Runs.", "format": {"type": "grammar", **REGEX["grammar"]}}, "n:\n[a-z]+|none"),
    ],
)
def test_tools_of_free_text(given: dict[str, Any], grammar: str | None) -> None:
    choice = {"type": "custom", "custom": {"name": "run"}}
    body = read_chat_body({"messages": [USER], "tools": [{"type": "custom", **given}, TOOL], "tool_choice": choice})
    assert (body.tools.choice, body.tools.named) == ("required", "run")
    run, other = body.tools.functions
    assert (run.name, run.is_text, other.is_text) == ("run", True, False)
    assert run.description is not None
    assert run.description.startswith("Runs.")
    assert run.description.endswith(grammar or "Runs.")
    is_held = grammar is not None and "none" in grammar
    assert (run.strict, run.pattern) == ((True, "[a-z]+|none") if is_held else (False, None))
    assert run.property("input").get("pattern") == ("^(?:[a-z]+|none)$" if is_held else None)
    assert list(body.ignored) == (["tools[].custom.format"] if grammar and not is_held else [])


def test_tools_of_free_text_may_be_the_allowed_ones() -> None:
    run = {"type": "custom", "custom": {"name": "run"}}
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [run]}}
    body = read_chat_body({"messages": [USER], "tools": [run, TOOL], "tool_choice": choice})
    assert [function.name for function in body.tools.functions] == ["run"]


def test_calls_of_free_text_come_back() -> None:
    body = read_chat_body({"messages": [USER, called("custom", {"name": "run", "input": "x\n"})]})
    function = {"name": "run", "arguments": {"input": "x\n"}}
    assert body.messages[1]["tool_calls"] == [{"id": "c", "type": "function", "function": function}]


def test_only_allowed_tools_are_shown() -> None:
    other = {"type": "function", "function": {"name": "other"}}
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "other"}}]}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    body = read_chat_body({"messages": [USER], "tools": [TOOL, other], "tool_choice": choice})
    assert body.tools == Tools((Function("other"),), "required")


def test_functions_are_tools() -> None:
    body = read_chat_body({"messages": [USER], "functions": [{"name": "f"}], "function_call": {"name": "f"}})
    assert body.tools == Tools((Function("f"),), "required", "f", parallel=False)
    assert body.options.legacy_calls
    off = read_chat_body({"messages": [USER], "functions": [{"name": "f"}], "function_call": "none"})
    assert not off.tools.are_offered


def test_a_schema_beside_json_object_binds_the_answer() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    body = read_chat_body({"messages": [USER], "response_format": {"type": "json_object", "schema": schema}})
    assert body.params.structured == StructuredOutput.of(schema)


def test_two_names_of_one_length() -> None:
    body = read_chat_body({"messages": [USER], "max_tokens": 9, "max_completion_tokens": 9})
    assert body.params.max_tokens == 9
