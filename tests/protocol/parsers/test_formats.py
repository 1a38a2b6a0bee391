"""Calls as real models write them, format by format, with what makes them hard."""

import json
from typing import Any

import pytest

from quire.protocol.parsers.choose import CALL_FORMATS
from quire.protocol.parsers.tools import Function, Tools
from tests.protocol.parsers.spoken import calls, read
from tests.text.cost import lines_run

SEARCH = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "filters": {"type": "object"}, "limit": {"type": "integer"}},
}
TOOLS = Tools((Function("search", None, SEARCH), Function("write_file", None, SEARCH), Function("now")))
HARD: dict[str, Any] = {"query": 'Zürich "東京" \\ </tool_call> {[', "filters": {"a": [1, {"b": None}], "c": {}}}
EXAMPLES: list[tuple[str, str, str, list[tuple[str, Any]]]] = [
    (
        "hermes",
        f"Let me look.\n<tool_call>\n{json.dumps({'name': 'search', 'arguments': HARD})}\n</tool_call>\n"
        '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
        "Let me look.",
        [("search", HARD), ("now", {})],
    ),
    # a closing brace too few, and one too many
    ("hermes", '<tool_call>{"name": "now", "arguments": {"a": 1}</tool_call>', "", [("now", {"a": 1})]),
    ("hermes", '<tool_call>{"name": "now", "arguments": {"a": 1}}}</tool_call>done', "done", [("now", {"a": 1})]),
    # the end of a section was forgotten
    ("hermes", '<tool_call>{"name": "now"}\n<tool_call>{"name": "now"}', "", [("now", {}), ("now", {})]),
    ("llama3", f"\n\n{json.dumps({'name': 'search', 'parameters': HARD})}", "", [("search", HARD)]),
    (
        "llama3",
        '<|python_tag|>{"type": "function", "name": "now", "parameters": {}}; {"name": "now", "parameters": {"a": 1}}',
        "",
        [("now", {}), ("now", {"a": 1})],
    ),
    ("llama3", "<|python_tag|>print(1)", "<|python_tag|>print(1)", []),
    (
        "mistral",
        f"[TOOL_CALLS] [{json.dumps({'name': 'search', 'arguments': HARD, 'id': 'abcdefghi'})}]",
        "",
        [("search", HARD)],
    ),
    (
        "mistral",
        f"Sure.[TOOL_CALLS]search[CALL_ID]a1b2c3d4e[ARGS]{json.dumps(HARD)}[TOOL_CALLS]now[ARGS]{{}}",
        "Sure.",
        [("search", HARD), ("now", {})],
    ),
    ("mistral", '[TOOL_CALLS]now{"a": 1}', "", [("now", {"a": 1})]),
    (
        "pythonic",
        f"[search(query={HARD['query']!r}, filters={HARD['filters']!r}, limit=-3), now()]",
        "",
        [("search", {**HARD, "limit": -3}), ("now", {})],
    ),
    (
        "pythonic",
        "<|tool_call_start|>[search(query='''a\n'b' ''', filters={\"x\": True, 'y': (1, 2.5e3)})]"
        "<|tool_call_end|>Wait.",
        "Wait.",
        [("search", {"query": "a\n'b' ", "filters": {"x": True, "y": [1, 2500.0]}})],
    ),
    ("pythonic", "[search(query='\\u00fc\\x41\\ud83d\\ude00\\'')]", "", [("search", {"query": "üA😀'"})]),
    (
        "deepseek",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n```json\n"
        f"{json.dumps(HARD)}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{{}}\n```"
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "",
        [("search", HARD), ("now", {})],
    ),
    (
        "deepseek",
        f"Hm.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>search<｜tool▁sep｜>{json.dumps(HARD)}<｜tool▁call▁end｜>"
        "<｜tool▁calls▁end｜>",
        "Hm.",
        [("search", HARD)],
    ),
    (
        "qwen3-coder",
        "I write it.\n<tool_call>\n<function=write_file>\n<parameter=query>\ndef f():\n\n    return '</function>'\n\n"
        '</parameter>\n<parameter=filters>\n{"a": [true]}\n</parameter>\n<parameter=limit>\n7\n</parameter>\n'
        "</function>\n</tool_call>",
        "I write it.",
        [("write_file", {"query": "def f():\n\n    return '</function>'\n", "filters": {"a": [True]}, "limit": 7})],
    ),
    ("qwen3-coder", "<tool_call>\n<function=now>\n</function>\n</tool_call>", "", [("now", {})]),
    # text where the schema says text, whatever it looks like; what no schema names is what it looks like
    (
        "qwen3-coder",
        "<tool_call><function=search><parameter=query>42</parameter><parameter=other>[1]</parameter></function>",
        "",
        [("search", {"query": "42", "other": [1]})],
    ),
    ("granite", f"<|tool_call|>[{json.dumps({'name': 'search', 'arguments': HARD})}]", "", [("search", HARD)]),
    (
        "harmony",
        "<|channel|>analysis<|message|>They want it.<|end|><|start|>assistant<|channel|>commentary<|message|>I look."
        "<|end|><|start|>assistant<|channel|>commentary to=functions.search <|constrain|>json<|message|>"
        f"{json.dumps(HARD)}<|call|>",
        "I look.",
        [("search", HARD)],
    ),
    (
        "harmony",
        '<|start|>assistant to=functions.now<|channel|>commentary json<|message|>{"a": 1}<|call|>',
        "",
        [("now", {"a": 1})],
    ),
]


@pytest.mark.parametrize("sizes", [[], [1], [3, 5]], ids=["whole", "letters", "pieces"])
@pytest.mark.parametrize(("name", "text", "content", "expected"), EXAMPLES)
def test_examples(name: str, text: str, content: str, expected: list[tuple[str, Any]], sizes: list[int]) -> None:
    message = read(CALL_FORMATS[name], text, sizes, tools=TOOLS)
    assert calls(message) == expected
    assert message.content == content


def test_harmony_tells_its_channels_apart_without_tools_too() -> None:
    text = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello!<|return|>"
    message = read(CALL_FORMATS["harmony"], text, [2], tools=Tools())
    assert (message.reasoning, message.content, message.calls) == ("Hm.", "Hello!", [])
    call = "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}<|call|>"
    assert not read(CALL_FORMATS["harmony"], call, tools=Tools()).calls


@pytest.mark.parametrize("literal", ["3 + 4", "f()", "'a", "[1, 2", "{1: }", "__import__('os')", "nan", "'\\uzz'", "x"])
def test_only_literals_are_arguments_of_pythonic_calls(literal: str) -> None:
    message = read(CALL_FORMATS["pythonic"], f"[now(a={literal})]", [1])
    assert [call.arguments for call in message.calls] == [""]


@pytest.mark.parametrize(
    ("name", "piece"),
    [
        ("hermes", '<tool_call>{"arguments": [\'\' "'),
        ("hermes", '<tool_call>{"arguments": "'),
        ("hermes", '<tool_call>{"arguments": {"a": "'),
        ("deepseek", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"),
        ("harmony", "<|channel|>"),
        ("mistral", '[TOOL_CALLS][{"arguments": ['),
        ("pythonic", "<|tool_call_start|>[now(a='"),
        ("qwen3-coder", "<tool_call><function=now><parameter=a>"),
    ],
)
def test_the_cost_of_broken_calls_does_not_grow_with_their_number(name: str, piece: str) -> None:
    few, many = (lines_run(lambda count=count: read(CALL_FORMATS[name], piece * count, [64])) for count in (50, 500))
    assert many < 25 * few


def test_nesting_has_an_end() -> None:
    message = read(CALL_FORMATS["pythonic"], f"[now(a={'[' * 10_000}", [4096])
    assert [call.arguments for call in message.calls] == [""]
    deep = '{"a": ' * 5000 + "1" + "}" * 5000
    message = read(CALL_FORMATS["hermes"], f'<tool_call>{{"name": "now", "arguments": {deep}}}</tool_call>', [4096])
    assert message.calls[0].arguments == deep
