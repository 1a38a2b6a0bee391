"""Whatever a model says, and however its text is cut, the pieces add up to what is read of the whole."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.protocol.parsers.choose import CALL_FORMATS, THINKINGS
from quire.protocol.parsers.tools import Function, Tools
from tests.protocol.parsers import spoken
from tests.protocol.parsers.spoken import TOOLS, read

every_format = pytest.mark.parametrize("name", list(CALL_FORMATS))


@every_format
@given(data=st.data())
def test_pieces_add_up_to_the_whole(name: str, data: st.DataObject) -> None:
    text = data.draw(spoken.answers(name))
    form, thinking = CALL_FORMATS[name], data.draw(st.sampled_from([None, *THINKINGS.values()]))
    options = {
        "thinking": thinking,
        "is_open": thinking is not None and data.draw(st.booleans()),
        "hidden": frozenset(data.draw(st.sets(st.sampled_from(spoken.MARKERS)))) - {"[", "{"},
        "tools": data.draw(st.sampled_from([TOOLS, Tools(TOOLS.functions, parallel=False)])),
    }
    whole = read(form, text, **options)
    assert read(form, text, [1], **options) == whole
    assert read(form, text, data.draw(spoken.sizes), **options) == whole


@every_format
@settings(max_examples=6, deadline=None)  # each is cut at every place
@given(data=st.data())
def test_whatever_is_cut_off_adds_up_wherever_it_is_cut(name: str, data: st.DataObject) -> None:
    text, form = data.draw(spoken.answers(name)), CALL_FORMATS[name]
    options = {"thinking": data.draw(st.sampled_from([None, *THINKINGS.values()])), "reason": "length"}
    sizes = data.draw(spoken.sizes)
    for cut in range(len(text) + 1):
        whole = read(form, text[:cut], **options)
        assert read(form, text[:cut], [1], **options) == whole
        assert read(form, text[:cut], sizes, **options) == whole


@every_format
@pytest.mark.parametrize("way", [None, "qwen3", "mistral"])
def test_no_marker_is_said_wherever_an_answer_is_cut(name: str, way: str | None) -> None:
    """What is said of a part is the beginning of what is said of the whole."""
    spaces = "" if CALL_FORMATS[name].bare else "Let me see. 1 < 2, [a] and {b}.\n"
    said = f"<|channel|>final<|message|>{spaces}<|end|>" if name == "harmony" else spaces
    text = said + spoken.written(name, [("get_weather", {"city": "Oslo", "days": 3}), ("now", {})])
    thinking = None if way is None or name == "harmony" else THINKINGS[way]
    if thinking is not None:
        text = f"{thinking.start}\nFirst < then.\n{thinking.end}\n\n{text}"
    whole = read(CALL_FORMATS[name], text, thinking=thinking)
    assert len(whole.calls) == 2
    for cut in range(len(text) + 1):
        part = read(CALL_FORMATS[name], text[:cut], thinking=thinking, reason="length")
        assert whole.content.startswith(part.content.rstrip())
        assert whole.reasoning.startswith(part.reasoning.rstrip())
        assert [call.name for call in part.calls] == [call.name for call in whole.calls[: len(part.calls)]]


def test_half_a_marker_is_text_where_the_model_ended_there() -> None:
    assert read(CALL_FORMATS["hermes"], "a <tool").content == "a <tool"
    assert read(CALL_FORMATS["hermes"], "a <tool", reason="length").content == "a "
    assert read(CALL_FORMATS["hermes"], "<tool_call>{", reason="deadline").content == ""


def test_a_special_token_is_never_cut_in_two() -> None:
    hidden = frozenset(CALL_FORMATS["deepseek"].markers)
    assert read(CALL_FORMATS["deepseek"], "a <", hidden=hidden, reason="length").content == "a <"


@every_format
@given(calls=spoken.spoken_calls, sizes=spoken.sizes)
def test_calls_are_read_as_they_were_written(name: str, calls: list, sizes: list[int]) -> None:
    message = read(CALL_FORMATS[name], spoken.written(name, calls), sizes)
    assert spoken.calls(message) == calls
    assert message.content == message.reasoning == ""
    assert [call.identity for call in message.calls] == [f"call_{number}" for number in range(len(calls))]


@every_format
@given(calls=spoken.spoken_calls, cut=st.integers(0, 400))
def test_a_call_that_is_cut_off_keeps_what_came_before_it(name: str, calls: list, cut: int) -> None:
    text = spoken.written(name, calls)
    whole, part = read(CALL_FORMATS[name], text), read(CALL_FORMATS[name], text[:cut])
    assert part.calls[:-1] == whole.calls[: max(0, len(part.calls) - 1)]
    if part.calls:
        last = len(part.calls) - 1
        assert whole.calls[last].arguments.startswith(part.calls[last].arguments)
        assert whole.calls[last].name == part.calls[last].name


@every_format
@given(text=st.text(), sizes=spoken.sizes)
def test_text_without_markers_is_content_to_the_letter(name: str, text: str, sizes: list[int]) -> None:
    if not any(marker[0] in text for marker in (*CALL_FORMATS[name].opens, *CALL_FORMATS[name].bare)):
        assert read(CALL_FORMATS[name], text, sizes).content == text


@every_format
def test_without_tools_to_call_one_at_a_time_is_enough(name: str) -> None:
    text = spoken.written(name, [("get_weather", {"city": "Oslo"}), ("now", {})])
    message = read(CALL_FORMATS[name], text, tools=Tools(TOOLS.functions, parallel=False))
    assert spoken.calls(message) == [("get_weather", {"city": "Oslo"})]


def test_text_is_held_back_only_while_it_may_be_a_marker() -> None:
    parser = _parser("hermes")
    assert [part.text for part in parser.push("The <tool")] == ["The"]
    assert [part.text for part in parser.push("box")] == [" <toolbox"]
    assert parser.push("<tool_call>") == []
    assert [(part.kind, part.text) for part in parser.push('{"name": "now", "arguments": {"a": "b')] == [
        ("call", "now"),
        ("arguments", '{"a": "b'),
    ]
    assert [(part.kind, part.text) for part in parser.push('c"}')] == [("arguments", 'c"}')]


def test_what_turns_out_to_be_no_call_is_content() -> None:
    for behind in ("", "\n<b>", '{"city": 1}', '{"arguments": {}}', '{"name": 5}', "{'name': 'now'}"):
        assert read(CALL_FORMATS["hermes"], "<tool_call>" + behind, [2]).content == "<tool_call>" + behind
    assert read(CALL_FORMATS["llama3"], '{"name": "unknown", "parameters": {}}').content.startswith("{")
    assert read(CALL_FORMATS["pythonic"], "[1, 2]").content == "[1, 2]"
    assert read(CALL_FORMATS["pythonic"], "[link](now(").content == "[link](now("


def test_a_marker_that_is_a_special_token_is_never_content() -> None:
    hidden = frozenset({"<tool_call>", "</tool_call>", "<think>"})
    assert read(CALL_FORMATS["hermes"], "a<tool_call>b</tool_call><think>c", hidden=hidden).content == "abc"


def test_an_answer_in_json_is_no_call_of_llama() -> None:
    parser = _parser("llama3")
    assert parser.push('{"cit') == []
    assert "".join(part.text for part in parser.push('y"')) == '{"city"'
    assert "".join(part.text for part in parser.push(': "Oslo"}')) == ': "Oslo"}'


def test_blank_space_next_to_calls_and_thinking_is_theirs() -> None:
    text = '<think>\nHm.\n\n</think>\n\nLet me see.\n<tool_call>\n{"name": "now"}\n</tool_call>\n\nDone. \n'
    message = read(CALL_FORMATS["hermes"], text, [3], thinking=THINKINGS["qwen3"])
    assert (message.reasoning, message.content) == ("Hm.", "Let me see.\n\nDone.")
    assert spoken.calls(message) == [("now", {})]
    assert read(CALL_FORMATS["hermes"], " \n plain \n", [1], thinking=THINKINGS["qwen3"]).content == " \n plain \n"


@pytest.mark.parametrize(
    ("text", "is_open", "reasoning", "content"),
    [
        ("<think>a</think>b", False, "a", "b"),
        ("a</think>b", True, "a", "b"),
        ("<think>a</think>b", True, "a", "b"),
        ("a", True, "a", ""),
        ("a</think>b", False, "", "a</think>b"),
        ("<think></think>b", False, "", "b"),
        ("<think>\n\n</think>\n\n", False, "", ""),
        ("a <think>b</think>", False, "", "a <think>b</think>"),
    ],
)
def test_thinking_comes_first_or_not_at_all(text: str, is_open: bool, reasoning: str, content: str) -> None:
    for sizes in ([], [1]):
        message = read(None, text, sizes, thinking=THINKINGS["qwen3"], is_open=is_open)
        assert (message.reasoning, message.content) == (reasoning, content)


def test_calls_within_thinking_are_thoughts() -> None:
    text = f"<think>{spoken.written('hermes', [('now', {})])}</think>Hello"
    message = read(CALL_FORMATS["hermes"], text, [4], thinking=THINKINGS["qwen3"])
    assert not message.calls
    assert "<tool_call>" in message.reasoning


def test_arguments_in_odd_shapes() -> None:
    listed = '[{"arguments": "{\\"city\\": 1}", "name": "a", "id": 3}, {"name": "b", "arguments": null}]'
    text = f"<tool_call>{listed}</tool_call>"
    message = read(CALL_FORMATS["hermes"], text, [1], tools=Tools((Function("a"), Function("b"))))
    assert [(call.name, json.loads(call.arguments)) for call in message.calls] == [("a", {"city": 1}), ("b", {})]


def _parser(name: str) -> spoken.AnswerParser:
    return spoken.AnswerParser(None, False, CALL_FORMATS[name], TOOLS, hidden=frozenset(), identities=str)
