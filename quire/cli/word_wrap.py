"""Wraps streaming text between words: a word that would cross the edge is taken back and set on the next line."""

import re
import unicodedata

_PARTS = re.compile(r"\n|[^\S\n]+|[^\s]+")
_WIPE = "\b \b"


class WordWrap:
    """What to write for each piece of a text, for a terminal of `width` columns."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._column = 0
        self._word = ""
        """The unfinished word at the end of the line, already written."""

    def push(self, text: str) -> str:
        return "".join(self._place(part) for part in _PARTS.findall(text))

    def _place(self, part: str) -> str:
        if part == "\n":
            self._column, self._word = 0, ""
            return part
        if part.isspace():
            self._word = ""
            if self._column + len(part) >= self._width:  # the line breaks here, so the space is not needed
                self._column = 0
                return "\n"
            self._column += len(part)
            return part
        return self._write(part)

    def _write(self, part: str) -> str:
        word, before = self._word + part, _columns(self._word)
        self._word = word
        fits = self._column + _columns(part) <= self._width
        starts_line = self._column == before
        if fits or starts_line:  # a word longer than a line is left to the terminal
            self._column += _columns(part)
            return part
        self._column = _columns(word)
        return _WIPE * before + "\n" + word


def _columns(text: str) -> int:
    """How wide a text is: East Asian characters and emoji take two columns, combining marks none."""
    return sum(
        0 if unicodedata.combining(character) else 1 + (unicodedata.east_asian_width(character) in "WF")
        for character in text
    )
