"""JSON out of a Source, passed on as it is written. Lenient: only where a value ends has to be certain."""

import json
import re

from quire.protocol.parsers.parts import Kind, Malformed, Part, Reader
from quire.protocol.parsers.source import Source

LONGEST_NAME = 256
_IN_STRING = re.compile(r'[^"\\]*')
_OUTSIDE = re.compile(r"[^\"{}\[\]]*")
_LOOSE = re.compile(r"[\s\w:,.+-]*")
_CLOSES = {"{": "}", "[": "]"}


class _Extent:
    """Where a value ends, found out as its text comes."""

    def __init__(self) -> None:
        self._open: list[str] = []
        self._in_string = False
        self._escaped = False
        self._is_bare = False
        self.is_whole = False
        self.is_broken = False

    def scan(self, text: str, at: int) -> int:
        """How far the value reaches in `text`, at most to its end."""
        while at < len(text) and not (self.is_whole or self.is_broken):
            at = self._string(text, at) if self._in_string else self._outside(text, at)
        return at

    def _string(self, text: str, at: int) -> int:
        if self._escaped:
            self._escaped = False
            return at + 1
        found = _IN_STRING.match(text, at)
        assert found is not None
        at = found.end()
        if at < len(text):
            self._escaped = text[at] == "\\"
            if text[at] == '"':
                self._in_string = False
                self.is_whole = not self._open
            at += 1
        return at

    def _outside(self, text: str, at: int) -> int:
        if not self._open and (self._is_bare or _is_bare(text[at])):
            return self._bare(text, at)
        found = _OUTSIDE.match(text, at)
        assert found is not None
        loose = _LOOSE.match(text, at, found.end())
        assert loose is not None
        at = loose.end()
        if at < found.end():
            self.is_broken = True
            return at
        if at < len(text):
            self._bracket(text[at])
            at += not self.is_broken
        return at

    def _bare(self, text: str, at: int) -> int:
        """A number or a word: it ends before what cannot belong to it."""
        self._is_bare = True
        while at < len(text) and _is_bare(text[at]):
            at += 1
        self.is_whole = at < len(text)
        return at

    def _bracket(self, letter: str) -> None:
        if letter == '"':
            self._in_string = True
        elif letter in _CLOSES:
            self._open.append(_CLOSES[letter])
        elif self._open and self._open[-1] == letter:
            self._open.pop()
            self.is_whole = not self._open
        else:
            self.is_broken = True


def _is_bare(letter: str) -> bool:
    return letter.isalnum() or letter in "+-."


def value(source: Source, kind: Kind = "arguments") -> Reader[None]:
    """Pass on the text of the value that is next; raises Malformed, behind what there is of it, where it breaks off."""
    extent = _Extent()
    while (yield from source.more()):
        end = extent.scan(source.text, source.at)
        if end > source.at:
            piece, source.at = source.text[source.at : end], end
            yield Part(kind, piece)
        if extent.is_whole:
            return
        if extent.is_broken:
            break
    raise Malformed


def string(source: Source, longest: int | None = None) -> Reader[str]:
    """The string that is next, without its quotes; raises Malformed for anything else."""
    yield from source.expect('"')
    text = '"'
    while True:
        if (longest is not None and len(text) > longest + 1) or not (yield from source.more()):
            raise Malformed
        letter = source.text[source.at]
        source.at += 1
        text += letter
        if letter == "\\":
            if not (yield from source.more()):
                raise Malformed
            text += source.text[source.at]
            source.at += 1
        elif letter == '"':
            return _decoded(text)


def _decoded(text: str) -> str:
    try:
        found: str = json.loads(text, strict=False)
        found.encode()
    except ValueError:
        raise Malformed from None
    return found
