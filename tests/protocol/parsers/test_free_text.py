"""Free text out of arguments, wherever they are cut."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.protocol.parsers.free_text import FreeText, TextCalls, free_text
from quire.protocol.parsers.parts import Part
from quire.protocol.parsers.tools import TEXT_PARAMETERS, Function, Tools

TOOLS = Tools((Function("write", None, TEXT_PARAMETERS, is_text=True), Function("now")))


def pieces(arguments: str, cuts: list[int]) -> str:
    """The text where arguments come in pieces that end at these places."""
    reader, places = FreeText(), [0, *sorted(cut % (len(arguments) + 1) for cut in cuts), len(arguments)]
    told = [reader.push(arguments[start:end]) for start, end in pairwise(places)]
    return "".join(told) + reader.end()


@given(st.text(), st.booleans(), st.lists(st.integers(0, 1000), max_size=6))
def test_input_is_what_json_says_it_is(text: str, ascii_only: bool, cuts: list[int]) -> None:
    arguments = json.dumps({"input": text}, ensure_ascii=ascii_only)
    assert pieces(arguments, cuts) == free_text(arguments) == text


@given(st.text(alphabet='\\"ud83dDEe/n{}:x0', max_size=30), st.lists(st.integers(0, 1000), max_size=6))
def test_whatever_is_written_does_not_depend_on_where_it_is_cut(written: str, cuts: list[int]) -> None:
    arguments = f' {{"input": "{written}'
    whole = free_text(arguments)
    assert pieces(arguments, cuts) == whole
    whole.encode()  # no half of a surrogate pair


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{ "input" :"a\\tb"} ', "a\tb"),
        ('{"input": "a", "more": 1}', "a"),
        ('{"more": 1, "input": "a"}', "a"),
        ('{"input": "cut of', "cut of"),
        ('{"input": "cut of\\', "cut of"),
        ('{"input": "cut of\\ud83d', "cut of"),
        ('{"input": "\\ud83d\\ude42"}', "🙂"),
        ('{"input": "\\ud83dx\\ude42\\ud83d\\u0041\\uzz\\q"}', "�x�\ufffdA\\uzz\\q"),
        ('{"input": "a\nb"}', "a\nb"),
        ('{"patch": "x"}', '{"patch": "x"}'),
        ('{"input": 5}', '{"input": 5}'),
        ("no JSON", "no JSON"),
        ('{"inp', '{"inp'),
        ("", ""),
    ],
)
def test_input_in_every_form(arguments: str, text: str) -> None:
    assert free_text(arguments) == pieces(arguments, list(range(len(arguments)))) == text


def test_only_calls_of_free_text_are_changed() -> None:
    calls = TextCalls(TOOLS)
    first = [Part("content", "x"), Part("call", "write", 0, "a"), Part("arguments", '{"input": "1', 0)]
    assert calls.take(first) == [Part("content", "x"), Part("call", "write", 0, "a"), Part("input", "1", 0)]
    more = [Part("arguments", '2"}', 0), Part("call", "now", 1, "b"), Part("arguments", "{}", 1)]
    assert calls.take(more) == [Part("input", "2", 0), *more[1:]]
    odd = [Part("call", "write", 2, "c"), Part("arguments", "odd", 2), Part("call", "write", 3, "d")]
    assert calls.take(odd) == [odd[0], Part("input", "odd", 2), odd[2]]
    assert calls.take([Part("arguments", "at the end", 3)]) == []
    assert (calls.end(), calls.end()) == ([Part("input", "at the end", 3)], [])
