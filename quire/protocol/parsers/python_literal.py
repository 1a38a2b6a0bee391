"""Literals of Python out of a Source: what a model may write as an argument of a call in Python's syntax."""

import json
from typing import Any

from quire.protocol.parsers.parts import Malformed, Reader
from quire.protocol.parsers.source import Source

_DEEPEST = 32
_LONGEST_WORD = 400
_WORDS = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0", "\n": ""}
_HEXADECIMAL = {"x": 2, "u": 4, "U": 8}
_PAIRS = {"[": "]", "(": ")"}


def literal(source: Source, depth: int = 0) -> Reader[Any]:
    """The value that is next; raises Malformed for anything that is none."""
    if depth > _DEEPEST or not (yield from source.more()):
        raise Malformed
    letter = source.text[source.at]
    if letter in "'\"":
        return (yield from text(source))
    if letter in _PAIRS:
        source.at += 1
        return (yield from _list(source, _PAIRS[letter], depth))
    if letter == "{":
        source.at += 1
        return (yield from _dict(source, depth))
    return _word((yield from source.word("+-._", _LONGEST_WORD)))


def text(source: Source) -> Reader[str]:
    """A string in single, double or tripled quotes."""
    quote = yield from source.expect("'", '"')
    if (yield from source.accept(quote)):
        if not (yield from source.accept(quote)):
            return ""
        quote *= 3
    found: list[str] = []
    while not (yield from source.accept(quote)):
        if not (yield from source.more()):
            raise Malformed
        letter = source.text[source.at]
        source.at += 1
        found.append((yield from _escaped(source)) if letter == "\\" else letter)
    # two halves of a pair, written as JSON writes a character beyond the sixteenth bit
    whole = "".join(found).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole


def _escaped(source: Source) -> Reader[str]:
    if not (yield from source.more()):
        raise Malformed
    letter = source.text[source.at]
    source.at += 1
    if letter not in _HEXADECIMAL:
        return _ESCAPES.get(letter, letter if letter in "\\'\"/" else "\\" + letter)
    digits = ""
    while len(digits) < _HEXADECIMAL[letter]:
        if not (yield from source.more()) or source.text[source.at] not in "0123456789abcdefABCDEF":
            raise Malformed
        digits += source.text[source.at]
        source.at += 1
    if int(digits, 16) > 0x10FFFF:
        raise Malformed
    return chr(int(digits, 16))


def _list(source: Source, end: str, depth: int) -> Reader[list[Any]]:
    found: list[Any] = []
    while True:
        yield from source.space()
        if (yield from source.accept(end)):
            return found
        found.append((yield from literal(source, depth + 1)))
        yield from source.space()
        if not (yield from source.accept(",")):
            yield from source.expect(end)
            return found


def _dict(source: Source, depth: int) -> Reader[dict[str, Any]]:
    found: dict[str, Any] = {}
    while True:
        yield from source.space()
        if (yield from source.accept("}")):
            return found
        key = yield from literal(source, depth + 1)
        yield from source.space()
        yield from source.expect(":")
        yield from source.space()
        # JSON has only text as keys
        found[key if isinstance(key, str) else json.dumps(key)] = yield from literal(source, depth + 1)
        yield from source.space()
        if not (yield from source.accept(",")):
            yield from source.expect("}")
            return found


def _word(word: str) -> Any:
    if word in _WORDS:
        return _WORDS[word]
    for kind in (int, float):
        try:
            number = kind(word)
        except ValueError:
            continue
        if abs(number) < float("inf"):  # neither infinite nor no number
            return number
    raise Malformed
