"""Structural tags of the form that nests formats: the texts each admits, and where one is wrong."""

import json
from typing import Any

import pytest

from quire.core.structured import StructuredOutput
from quire.sampling.grammar.compile import compile_matcher
from quire.sampling.grammar.errors import GrammarError
from tests.sampling.grammar.vocabulary import tokenizer, tokens_of

SEVEN = {"type": "json_schema", "json_schema": {"enum": [7]}}
ANYTHING = {"type": "any_text"}
CALLS = {
    "type": "triggered_tags",
    "triggers": ["<f=", "<call>"],
    "tags": [
        {"begin": "<f=a>", "content": SEVEN, "end": "</f>"},
        {"type": "tag", "begin": "<f=b>", "content": {"type": "regex", "pattern": "x+/"}, "end": ["</f>", "</g>"]},
        {"begin": "<call>", "content": SEVEN, "end": "</s>"},
    ],
}


def words(text: str) -> dict[str, Any]:
    return {"type": "const_string", "value": text}


def tag(begin: str, content: dict[str, Any], end: str | list[str]) -> dict[str, Any]:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def language(form: object) -> StructuredOutput:
    return StructuredOutput(structural_tag=json.dumps({"type": "structural_tag", "format": form}))


def admits(form: object, text: str) -> bool:
    matcher = compile_matcher(language(form), tokenizer())
    return matcher.consume_tokens(tokens_of(text)) and matcher.is_accepting()


@pytest.mark.parametrize(
    ("form", "good", "bad"),
    [
        (words('say "so"\n'), ['say "so"\n'], ["say", ""]),
        (SEVEN, ["7"], ["8", ""]),
        ({"type": "json_schema", "json_schema": True, "style": "json", "any_order": False}, ["[1]"], ["x"]),
        ({"type": "regex", "pattern": r"\d/[a-z]"}, ["1/x"], ["1x"]),
        ({"type": "grammar", "grammar": 'root ::= "a" num\nnum ::= [0-9]+'}, ["a12"], ["a"]),
        ({"type": "grammar", "grammar": 'start: n ("+" n)*\nn: /[0-9]+/'}, ["1+2"], ["1+"]),
        (ANYTHING, ["", "anything\nat all"], ["<call>"]),
        ({"type": "any_text", "excludes": ['b"d', "worse"]}, ["good", "b d"], ['so b"d', "worse"]),
        ({"type": "sequence", "elements": [words("A: "), SEVEN, ANYTHING]}, ["A: 7", "A: 7 and"], ["A: ", "7"]),
        ({"type": "or", "elements": [words("yes"), SEVEN]}, ["yes", "7"], ["no", "yes7"]),
        ({"type": "optional", "content": words("x")}, ["", "x"], ["xx"]),
        ({"type": "plus", "content": words("x")}, ["x", "xxx"], [""]),
        ({"type": "star", "content": words("x")}, ["", "xxx"], ["y"]),
        ({"type": "repeat", "content": words("x"), "min": 2, "max": 3}, ["xx", "xxx"], ["x", "xxxx"]),
        ({"type": "repeat", "content": words("x"), "min": 1, "max": -1}, ["x", "xxxx"], [""]),
        (tag("<t>", SEVEN, "</t>"), ["<t>7</t>"], ["<t>7", "7", "<t>8</t>"]),
        (tag("<t>", SEVEN, ""), ["<t>7"], ["<t>"]),
        (tag("<think>", ANYTHING, "</think>"), ["<think>so\nit is</think>"], ["<think>so", "so</think>"]),
        (tag("<t>", ANYTHING, ["</t>", "</s>"]), ["<t>a</t>", "<t>a</s>", "<t></t>"], ["<t>a", "<t>a</t>b"]),
        (
            {"type": "sequence", "elements": [tag("<think>", ANYTHING, "</think>"), CALLS]},
            ["<think>so</think>", "<think></think>a <f=a>7</f> b"],
            ["<f=a>7</f>", "<think>so</think><f=a>8"],
        ),
        (
            CALLS,
            ["", "free", "<f=a>7</f>", "so <f=b>xx/</g> and <call>7</s> on"],
            ["<f=a>8</f>", "<f=c>", "<f=a>7", "<call>8"],
        ),
        (CALLS | {"at_least_one": True}, ["<f=a>7</f>", "<f=a>7</f> x <call>7</s>"], ["", "x <f=a>7</f>"]),
        (CALLS | {"stop_after_first": True}, ["", "x", "x <f=a>7</f>"], ["<f=a>7</f> y"]),
        (CALLS | {"stop_after_first": True, "at_least_one": True}, ["<f=a>7</f>"], ["", "<f=a>7</f>y", "x"]),
        (CALLS | {"excludes": ["bad"]}, ["x <f=a>7</f> y"], ["bad", "bad <f=a>7</f>", "<f=a>7</f> bad"]),
        (tag("[", CALLS, "]"), ["[]", "[x <f=a>7</f> y]"], ["[", "[<f=a>8</f>]", "[x]y"]),
        (tag("[", CALLS | {"stop_after_first": True}, "]"), ["[x]", "[x <f=a>7</f>]"], ["[<f=a>7</f>x]"]),
        (
            {"type": "tags_with_separator", "tags": [tag("<a>", SEVEN, "</a>")], "separator": ", "},
            ["", "<a>7</a>", "<a>7</a>, <a>7</a>"],
            ["<a>7</a>, ", "<a>7</a><a>7</a>", "x"],
        ),
        (
            {"type": "tags_with_separator", "tags": [tag("<a>", SEVEN, "</a>")], "separator": "", "at_least_one": True},
            ["<a>7</a>", "<a>7</a><a>7</a>"],
            [""],
        ),
        (
            {
                "type": "tags_with_separator",
                "tags": [tag("<a>", SEVEN, "</a>"), tag("<b>", ANYTHING, "</b>")],
                "separator": ",",
                "stop_after_first": True,
            },
            ["", "<b>x</b>"],
            ["<a>7</a>,<a>7</a>"],
        ),
    ],
    ids=lambda value: str(value)[:60],
)
def test_texts_of_a_format(form: dict[str, Any], good: list[str], bad: list[str]) -> None:
    assert [text for text in good if not admits(form, text)] == []
    assert [text for text in bad if admits(form, text)] == []


@pytest.mark.parametrize(
    ("form", "said"),
    [
        (5, "/format is 5"),
        ({}, "/format/type is None"),
        ({"type": "token", "token": 3}, "/format/type is 'token'"),
        ({"type": ["tag"]}, "/format/type"),
        ({"type": "const_string", "value": 5}, "/format/value is 5; it must be text"),
        ({"type": "const_string", "value": "a", "more": 1}, "/format/more"),
        ({"type": "json_schema", "json_schema": {}, "style": "qwen_xml"}, "/format/style is 'qwen_xml'"),
        ({"type": "json_schema", "json_schema": {}, "any_order": True}, "/format/any_order"),
        ({"type": "json_schema", "json_schema": False}, "/format/json_schema"),
        ({"type": "any_text", "max_tokens": 5}, "/format/max_tokens is 5; it must be left out"),
        ({"type": "any_text", "excludes": [""]}, "/format/excludes/0"),
        ({"type": "or", "elements": []}, "/format/elements"),
        ({"type": "repeat", "content": words("x"), "min": 3, "max": 2}, "/format/max is 2"),
        ({"type": "repeat", "content": words("x"), "min": True, "max": 2}, "/format/min"),
        ({"type": "or", "elements": [words("a"), tag("<", words("x"), 5)]}, "/format/elements/1/end"),  # type: ignore[arg-type]
        (tag("<", ANYTHING, ""), "/format/content is free text in a tag whose end is empty"),
        (tag("<", {"type": "tag", "begin": {"type": "token"}}, ">"), "/format/content/begin"),
        ({"type": "sequence", "elements": [ANYTHING, words("x")]}, "/format/elements/0 is free text with something"),
        ({"type": "plus", "content": CALLS}, "/format/content is free text with something behind it"),
        (CALLS | {"triggers": ["<f="]}, "/format/tags/2/begin"),
        (CALLS | {"triggers": ["<f=", "<f=", "<call>"]}, "/format/triggers/1"),
        (CALLS | {"triggers": ["<f=", "<f=a", "<call>"]}, "/format/triggers has '<f=a'"),
        ({"type": "regex", "pattern": "("}, "unclosed group"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_cannot_be_honoured_is_refused_by_its_pointer(form: object, said: str) -> None:
    with pytest.raises(GrammarError) as caught:
        compile_matcher(language(form), tokenizer())
    assert said in str(caught.value)
    assert len(str(caught.value)) < 800


def test_both_forms_at_once_are_refused() -> None:
    both = {"type": "structural_tag", "format": ANYTHING, "triggers": ["a"]}
    with pytest.raises(GrammarError, match="/triggers"):
        compile_matcher(StructuredOutput(structural_tag=json.dumps(both)), tokenizer())
