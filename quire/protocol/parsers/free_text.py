"""The input of calls of free text, out of the arguments that the model wrote: models write arguments with names."""

import re
from collections.abc import Iterable

import msgspec

from quire.protocol.parsers.parts import Part
from quire.protocol.parsers.tools import INPUT, Tools

_BEGIN = re.compile(rf'\s*\{{\s*"{INPUT}"\s*:\s*"')
_HEX = "[0-9a-fA-F]"
_HIGH, _LOW = rf"\\u[dD][89abAB]{_HEX}{{2}}", rf"\\u[dD][c-fC-F]{_HEX}{{2}}"
_NOT_LOW = rf"[^\\]|\\[^u]|\\u[^dD]|\\u[dD][^c-fC-F]|\\u[dD][c-fC-F]{_HEX}?(?!{_HEX})."
_PIECE = re.compile(
    rf"(?P<plain>[^\"\\]+)|(?P<pair>{_HIGH}{_LOW})|(?P<half>{_HIGH}(?={_NOT_LOW})|{_LOW})"
    rf"|(?P<code>\\u(?![dD][89a-fA-F]){_HEX}{{4}})|(?P<short>\\[^u])|(?P<broken>\\u(?={_HEX}{{0,3}}[^0-9a-fA-F]))",
    re.DOTALL,
)
"""Of a JSON string, as far as it is certain: half of a surrogate pair waits for the other."""
_SHORT = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "/": "/"}


class FreeText:
    """Of one call. The text comes as soon as it is certain, and does not depend on where the arguments were cut."""

    def __init__(self) -> None:
        self._unread = ""
        self._is_begun = False
        self._is_over = False

    def push(self, arguments: str) -> str:
        """What more arguments add to the text."""
        self._unread += "" if self._is_over else arguments
        if not self._is_begun:
            begin = _BEGIN.match(self._unread)
            if begin is None:
                return ""
            self._is_begun, self._unread = True, self._unread[begin.end() :]
        found: list[str] = []
        at = 0
        while piece := _PIECE.match(self._unread, at):
            found.append(_text_of(piece))
            at = piece.end()
        self._unread = self._unread[at:]
        if self._unread.startswith('"'):
            self._is_over, self._unread = True, ""
        return "".join(found)

    def end(self) -> str:
        """The rest, when there are no more arguments: all of them as they stand, where they are written otherwise."""
        return "" if self._is_begun else _otherwise(self._unread)


class TextCalls:
    """The parts of one answer, with the input of calls of free text in place of their arguments."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._open: FreeText | None = None
        self._number = 0

    def take(self, parts: Iterable[Part]) -> list[Part]:
        found: list[Part] = []
        for part in parts:
            if part.kind == "arguments" and self._open is not None:
                found += self._input(self._open.push(part.text))
                continue
            found += self.end()
            if part.kind == "call":
                self._open, self._number = FreeText() if self._tools.is_text(part.text) else None, part.number
            found.append(part)
        return found

    def end(self) -> list[Part]:
        """What was held back of a call that is over."""
        rest = "" if self._open is None else self._open.end()
        self._open = None
        return self._input(rest)

    def _input(self, text: str) -> list[Part]:
        return [Part("input", text, self._number)] if text else []


def free_text(arguments: str) -> str:
    """The input of a call whose arguments are all there."""
    text = FreeText()
    return text.push(arguments) + text.end()


def _text_of(piece: re.Match[str]) -> str:
    given = piece[0]
    match piece.lastgroup:
        case "pair":
            return (bytes.fromhex(given[2:6]) + bytes.fromhex(given[8:12])).decode("utf-16-be")
        case "half":
            return "\ufffd"
        case "code":
            return chr(int(given[2:], 16))
        case "short":
            return _SHORT.get(given[1], given)
        case _:
            return given


def _otherwise(arguments: str) -> str:
    try:
        found = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        found = None
    given = found.get(INPUT) if isinstance(found, dict) else None
    return given if isinstance(given, str) else arguments
