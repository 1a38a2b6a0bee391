"""Streamed text ends up on the screen as if it had been wrapped whole, however it was cut."""

import textwrap
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from quire.cli.word_wrap import WordWrap


def screen(written: str) -> list[str]:
    """What a terminal shows that was sent this."""
    lines, column = [""], 0
    for character in written:
        if character == "\n":
            lines.append("")
            column = 0
        elif character == "\b":
            column -= 1
        else:
            lines[-1] = lines[-1][:column] + character + lines[-1][column + 1 :]
            column += 1
    return [line.rstrip() for line in lines]


def shown(pieces: list[str], width: int) -> list[str]:
    wrap = WordWrap(width)
    return screen("".join(wrap.push(piece) for piece in pieces))


words = st.lists(st.text("abc", min_size=1, max_size=9), min_size=1, max_size=30)


@given(words, st.integers(10, 30), st.data())
def test_cut_anywhere_it_is_wrapped_between_words(text: list[str], width: int, data: st.DataObject) -> None:
    whole = " ".join(text)
    cuts = sorted({0, len(whole), *data.draw(st.lists(st.integers(0, len(whole)), max_size=20))})
    pieces = [whole[start:end] for start, end in pairwise(cuts)]
    found = shown(pieces, width)
    assert [line for line in found if line] == textwrap.wrap(whole, width)


def test_line_breaks_are_kept() -> None:
    assert shown(["one\n", "\ntwo"], 20) == ["one", "", "two"]


def test_a_word_longer_than_a_line_is_written_as_it_is() -> None:
    assert shown(["a ", "b" * 30], 10) == ["a", "b" * 30]


def test_wide_characters_count_twice() -> None:
    assert shown(["ab ", "日本語"], 8) == ["ab", "日本語"]
