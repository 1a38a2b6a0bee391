"""Stop strings are found wherever the text is cut, and nothing that belongs to one goes out before."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.text.stop_strings import StopMatch, StopStrings
from tests.text.cost import lines_run

LETTERS = st.text(alphabet="ab", max_size=24)
STOPS = st.lists(st.text(alphabet="ab", min_size=1, max_size=5), max_size=5)


def expected(text: str, stops: list[str]) -> StopMatch | None:
    """By definition: the stop string that is complete first, and of those the longest."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            stop = max(ending, key=len)
            return StopMatch(stop, end - len(stop), end)
    return None


def parts_of(text: str, cuts: list[int]) -> list[str]:
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


@given(text=LETTERS, stops=STOPS, cuts=st.lists(st.integers(0, 100), max_size=6), include=st.booleans())
def test_any_split_stops_at_the_same_place(text: str, stops: list[str], cuts: list[int], include: bool) -> None:
    matcher = StopStrings(stops, include_stop=include)
    out = "".join([matcher.push(part) for part in parts_of(text, cuts)])
    match = expected(text, stops)
    assert matcher.match == match
    if match is None:
        assert out + matcher.flush() == text
    else:
        assert out == text[: match.end if include else match.start]
        assert matcher.push("more") == ""
        assert matcher.flush() == ""


@given(text=LETTERS, stops=STOPS)
def test_exactly_what_may_become_a_stop_string_is_held(text: str, stops: list[str]) -> None:
    matcher = StopStrings(stops)
    out = ""
    for count, character in enumerate(text, start=1):
        out += matcher.push(character)
        if matcher.match is not None:
            return
        seen = text[:count]
        beginnings = [stop[:size] for stop in stops for size in range(1, len(stop)) if seen.endswith(stop[:size])]
        assert out == seen[: len(seen) - max(map(len, beginnings), default=0)]


def test_a_stop_string_across_tokens() -> None:
    matcher = StopStrings(["\n\nUser:", "</s>"])
    assert [matcher.push(part) for part in ("Hello", "\n", "\nUs", "ed <", "/", "s", ">tail")] == [
        *("Hello", "", "", "\n\nUsed ", "", "", "")
    ]
    assert matcher.match == StopMatch("</s>", 12, 16)


def test_include_the_stop_string() -> None:
    matcher = StopStrings(["END"], include_stop=True)
    assert [matcher.push(part) for part in ("the E", "N", "D of it")] == ["the ", "", "END"]
    assert matcher.match == StopMatch("END", 4, 7)


def test_text_that_may_not_stop_yet_goes_straight_out() -> None:
    matcher = StopStrings(["stop"])
    assert matcher.push("a st") == "a "
    assert matcher.push("op stop s", may_stop=False) == "stop stop s"
    assert matcher.match is None
    assert matcher.push("top") == "top"
    assert matcher.push(" stop") == " "
    assert matcher.match == StopMatch("stop", 17, 21)


def test_no_stop_strings_hold_nothing() -> None:
    matcher = StopStrings([])
    assert matcher.push("anything") == "anything"
    assert StopStrings([""]).push("x") == "x"


@pytest.mark.parametrize("stops", [["a" * 1000 + "b"], [f"{'a' * size}b" for size in range(1, 65)]])
def test_the_cost_is_that_of_the_new_text(stops: list[str]) -> None:
    """Also when the text is nearly a stop string again and again."""
    matcher = StopStrings(stops)
    text = ("a" * 999 + "x") * 10
    assert lines_run(lambda: [matcher.push(character) for character in text]) < 30 * len(text)
    assert matcher.match is None
