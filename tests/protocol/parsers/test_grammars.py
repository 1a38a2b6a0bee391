"""The language of every format's calls, as llguidance understands it."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from llguidance import LLMatcher, LLTokenizer

from quire.core.errors import InvalidRequest
from quire.protocol.openai.custom_tools import read_custom
from quire.protocol.openai.fields import Fields
from quire.protocol.parsers.choose import CALL_FORMATS, choose_calls
from quire.protocol.parsers.tools import Choice, Function, Tools
from quire.sampling.grammar.lark import Lark
from tests.protocol.parsers import spoken
from tests.text import vocabularies

MARKERS = sorted({marker for form in CALL_FORMATS.values() for marker in form.markers if len(marker) > 1})
STRICT = Tools(tuple(replace(function, strict=True) for function in spoken.TOOLS.functions))
every_format = pytest.mark.parametrize("name", list(CALL_FORMATS))
both_spellings = pytest.mark.parametrize("special", [True, False], ids=["special tokens", "letters"])


@cache
def vocabulary(special: bool) -> tuple[tokenizers.Tokenizer, LLTokenizer]:
    tokenizer = vocabularies.byte_level()
    if special:
        tokenizer.add_special_tokens(MARKERS)
    return tokenizer, LLTokenizer(tokenizer.to_str())


def accepts(name: str, tools: Tools, text: str, *, special: bool) -> bool:
    """Whether the language of calls has a text in it, from its beginning to its end."""
    tokenizer, for_grammars = vocabulary(special)
    ids: Callable[[str], int | None] = tokenizer.token_to_id
    lark = Lark(ids if special else lambda _: None)
    matcher = LLMatcher(for_grammars, lark.written(CALL_FORMATS[name].grammar(lark, tools)))
    assert not matcher.is_error(), matcher.get_error()
    tokens = tokenizer.encode(text, add_special_tokens=False).ids
    return matcher.validate_tokens(tokens) == len(tokens) and matcher.consume_tokens(tokens) and matcher.is_accepting()


def asked(choice: Choice = "required", **more: Any) -> Tools:
    return replace(STRICT, choice=choice, **more)


@every_format
@both_spellings
@settings(max_examples=15, deadline=None)
@given(calls=spoken.spoken_calls)
def test_calls_that_must_be_made_are_calls(name: str, special: bool, calls: list) -> None:
    (function, arguments), *_ = calls
    if name == "pythonic" and function != "now":
        arguments = {"city": "Oslo"}
    in_order = {key: arguments[key] for key in ("city", "days", "exact") if key in arguments}
    # a schema binds JSON, and so Python's strings are written as JSON's
    said = spoken.written(name, [(function, in_order)]).replace("'Oslo'", '"Oslo"')
    assert accepts(name, asked(parallel=False), said, special=special)
    assert not accepts(name, asked(), "Hello", special=special)
    assert not accepts(name, asked(), "", special=special)


@every_format
@both_spellings
def test_several_calls_where_they_may_be(name: str, special: bool) -> None:
    two = spoken.written(name, [("now", {}), ("now", {})])
    # harmony's models make one call at a time
    assert accepts(name, asked(), two, special=special) == (name != "harmony")
    assert not accepts(name, asked(parallel=False), two, special=special)


@every_format
@both_spellings
def test_arguments_are_what_the_schema_says(name: str, special: bool) -> None:
    for good in ({"city": "Oslo"}, {"city": "Oslo", "days": 3, "exact": True}):
        said = spoken.written(name, [("get_weather", good)]).replace("'Oslo'", '"Oslo"')
        assert accepts(name, asked(), said, special=special)
    for bad in ({}, {"city": "Oslo", "days": 1.5}, {"city": "Oslo", "days": "three"}):
        said = spoken.written(name, [("get_weather", bad)]).replace("'Oslo'", '"Oslo"')
        assert not accepts(name, asked(), said, special=special)
    assert not accepts(name, asked(), spoken.written(name, [("unknown", {})]), special=special)


@every_format
def test_a_call_by_name_is_of_no_other_function(name: str) -> None:
    tools = asked(named="now")
    assert accepts(name, tools, spoken.written(name, [("now", {})]), special=True)
    said = spoken.written(name, [("get_weather", {"city": "Oslo"})]).replace("'Oslo'", '"Oslo"')
    assert not accepts(name, tools, said, special=True)


@every_format
@both_spellings
def test_strict_calls_may_stand_in_any_text(name: str, special: bool) -> None:
    tools = asked("auto")
    before = "" if CALL_FORMATS[name].bare else "I look:\nnow. "
    if name == "harmony":
        before = f"<|channel|>analysis<|message|>{before}<|end|><|start|>assistant"
        assert accepts(name, tools, "<|channel|>final<|message|>Hello\n there", special=special)
    else:
        assert accepts(name, tools, "Hello\n there, 5 > 3", special=special)
    assert accepts(name, tools, before + spoken.written(name, [("now", {})]), special=special)
    bad = spoken.written(name, [("get_weather", {"city": "Oslo", "days": "x"})]).replace("'Oslo'", '"Oslo"')
    if special or name != "harmony":  # whose messages nothing but special tokens can end
        assert not accepts(name, tools, before + bad, special=special)


@every_format
@both_spellings
@pytest.mark.parametrize("choice", ["required", "auto"])
def test_free_text_follows_its_expression(name: str, special: bool, choice: Choice) -> None:
    tool = {"name": "run", "format": {"type": "grammar", "syntax": "regex", "definition": 'ls( "[a-z/]+")?|a\nb'}}
    run = read_custom(Fields(tool, known=tool), "tools[0]")
    tools = Tools((run,), choice)
    if name == "harmony" and not special and choice == "auto":
        return  # its messages end by nothing but special tokens
    for text in ("ls", 'ls "src/a"', "a\nb"):
        assert accepts(name, tools, free_text_call(name, text), special=special)
    for text in ("rm", "ls ", "lsls", 'ls "A"', "xls"):
        assert not accepts(name, tools, free_text_call(name, text), special=special)


def free_text_call(name: str, text: str) -> str:
    """Written as JSON writes strings, where arguments are JSON or nearly so."""
    return (
        spoken.written(name, [("run", {"input": "@@"})])
        .replace("'@@'", '"@@"')
        .replace("@@", text if name == "qwen3-coder" else json.dumps(text)[1:-1])
    )


def test_free_text_has_no_end_of_its_own_in_it() -> None:
    tool = {"name": "run", "format": {"type": "grammar", "syntax": "regex", "definition": "(?s:.*)"}}
    tools = Tools((read_custom(Fields(tool, known=tool), "tools[0]"),), "required")
    for text, is_good in (("a </b>\n", True), ("a </parameter> b", False)):
        assert accepts("qwen3-coder", tools, free_text_call("qwen3-coder", text), special=True) is is_good


def test_functions_that_are_not_strict_take_any_object() -> None:
    tools = Tools((*STRICT.functions[:1], Function("loose", None, spoken.WEATHER)))
    assert accepts("hermes", tools, spoken.written("hermes", [("loose", {"city": 5})]), special=True)
    assert not accepts("hermes", tools, spoken.written("hermes", [("get_weather", {"city": 5})]), special=True)


@pytest.mark.parametrize(
    ("name", "template", "text"),
    [
        ("mistral", "[TOOL_CALLS] [ARGS]", '[TOOL_CALLS]get_weather[ARGS]{"city": "Oslo"}[TOOL_CALLS]now[ARGS]{}'),
        (
            "deepseek",
            "<｜tool▁calls▁begin｜>",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        ),
    ],
)
def test_variants_follow_the_template(name: str, template: str, text: str) -> None:
    form = choose_calls("auto", template)
    tokenizer, for_grammars = vocabulary(special=True)
    lark = Lark(tokenizer.token_to_id)
    assert form is not None
    matcher = LLMatcher(for_grammars, lark.written(form.grammar(lark, asked())))
    tokens = tokenizer.encode(text, add_special_tokens=False).ids
    assert matcher.consume_tokens(tokens)
    assert matcher.is_accepting()


@pytest.mark.parametrize("name", ["pythonic", "qwen3-coder"])
def test_arguments_one_by_one_need_a_list_of_them(name: str) -> None:
    function = Function("f", None, {"anyOf": [{"type": "object"}]}, strict=True)
    with pytest.raises(InvalidRequest, match="'anyOf'") as refused:
        accepts(name, Tools((function,), "required"), "", special=True)
    assert refused.value.field == "tools"


@pytest.mark.parametrize(
    ("given", "fine"), [("f()", True), ("f(b=1)", True), ("f(a=2, b=1)", True), ("f(, b=1)", False)]
)
def test_optional_arguments_may_be_left_out(given: str, fine: bool) -> None:
    whole = {"type": "integer"}
    tools = Tools((Function("f", None, {"properties": {"a": whole, "b": whole}}),), "required")
    assert accepts("pythonic", tools, f"[{given}]", special=True) == fine
