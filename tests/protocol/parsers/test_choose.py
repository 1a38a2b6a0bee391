"""Which parsers a chat template shows; the lines are what templates of these models say."""

from typing import get_args

import pytest

from quire.config.parsers import OwnReasoningParser, OwnToolParser
from quire.protocol.parsers.choose import CALL_FORMATS, THINKINGS, choose_calls, choose_thinking

HERMES = '<tool_call>\\n{\\"name\\": <function-name>, \\"arguments\\": <args-json-object>}\\n</tool_call>'
SHOWN = [
    ("hermes", HERMES),
    ("hermes", """'<tool_call>\\n{"name": "' + call.name + '", "arguments": ' + (call.arguments | tojson)"""),
    ("qwen3-coder", "\\n<tool_call>\\n<function=' + call.name + '>\\n<parameter=' + name"),
    (
        "llama3",
        '"Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}."',
    ),
    ("llama3", '{{- "<|python_tag|>" + tool_call.name + ".call(" }}'),
    ("mistral", '{{- "[TOOL_CALLS][" }}'),
    ("pythonic", "List of tools: <|tool_list_start|>["),
    ("pythonic", "[func_name1(params_name1=params_value1, params_name2=params_value2...), func_name2(params)]"),
    ("deepseek", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + tool['type'] + '<｜tool▁sep｜>"),
    ("granite", "respond only with <|tool_call|> followed by a JSON list of tools used."),
    ("harmony", '"<|start|>assistant<|channel|>final<|message|>" + message.content + "<|return|>"'),
    (None, "<tool_call>{{ call.name }}<arg_key>{{ key }}</arg_key>"),
    (None, "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>"),
]


@pytest.mark.parametrize(("name", "template"), SHOWN)
def test_a_template_shows_how_its_model_calls(name: str | None, template: str) -> None:
    found = choose_calls("auto", template)
    assert (None if found is None else type(found).__name__) == (
        None if name is None else type(CALL_FORMATS[name]).__name__
    )


def test_a_name_beats_the_template() -> None:
    assert choose_calls("mistral", HERMES) is CALL_FORMATS["mistral"]
    assert choose_calls("none", HERMES) is None
    assert choose_thinking("none", "</think>") is None
    assert choose_thinking("deepseek-r1", "") is THINKINGS["deepseek-r1"]


@pytest.mark.parametrize(
    ("name", "template"),
    [
        ("qwen3", "{%- if enable_thinking is false %}<think>\n\n</think>"),
        ("mistral", "'[THINK]' + thought + '[/THINK]'"),
        ("harmony", "<|channel|>analysis<|message|>"),
        (None, "<|im_start|>"),
    ],
)
def test_a_template_shows_how_its_model_thinks(name: str | None, template: str) -> None:
    assert choose_thinking("auto", template) is (None if name is None else THINKINGS[name])


@pytest.mark.parametrize(
    ("name", "prompt", "is_open"),
    [
        ("qwen3", "<|im_start|>assistant\n<think>\n", True),
        ("qwen3", "<|im_start|>assistant\n", False),
        ("qwen3", "<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("deepseek-r1", "<｜Assistant｜>", True),
        ("deepseek-r1", "<｜Assistant｜><think></think>", False),
        ("harmony", "<|start|>assistant", False),
    ],
)
def test_a_prompt_may_have_begun_the_thinking(name: str, prompt: str, is_open: bool) -> None:
    assert THINKINGS[name].is_open(prompt) == is_open


def test_every_parser_can_be_named() -> None:
    assert set(get_args(OwnToolParser)) == {"auto", "none", *CALL_FORMATS}
    assert set(get_args(OwnReasoningParser)) == {"auto", "none", *THINKINGS}
