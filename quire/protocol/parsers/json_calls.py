"""Calls written as JSON objects, `{"name": ..., "arguments": {...}}`, which most formats put between their markers."""

import json

from quire.protocol.parsers.json_text import LONGEST_NAME, string, value
from quire.protocol.parsers.parts import Malformed, Part, Reader, captured
from quire.protocol.parsers.source import Source
from quire.protocol.parsers.tools import Tools

BRACKETS = ("}", "]")
"""What models write one too many of."""
_ARGUMENTS = ("arguments", "parameters")
_NAMES = ("name", "function")
_BEFORE_NAME = (*_NAMES, *_ARGUMENTS, "type", "id", "index")
"""What an object begins with that is a call; any other is known to be none by its first key."""


def json_calls(source: Source, tools: Tools | None = None) -> Reader[None]:
    """One object, or a list of them. With `tools` given, a name that is none of theirs is malformed."""
    yield from source.space()
    if not (yield from source.accept("[")):
        yield from json_call(source, tools)
        return
    while True:
        yield from source.space()
        if (yield from source.accept("]")):
            return
        yield from json_call(source, tools)
        yield from source.space()
        yield from source.accept(",")


def json_call(source: Source, tools: Tools | None = None) -> Reader[None]:
    yield from source.expect("{")
    name: str | None = None
    early: str | None = None
    """Arguments that were written before the name."""
    is_complete = False
    while True:
        yield from source.space()
        if (yield from source.accept("}")):
            break
        key = yield from string(source, LONGEST_NAME)
        if name is None and key not in _BEFORE_NAME:
            raise Malformed
        yield from source.space()
        yield from source.expect(":")
        yield from source.space()
        if key in _NAMES and name is None:
            name = yield from _name(source, tools)
            yield Part("call", name)
            if early is not None:
                yield Part("arguments", early)
        elif key in _ARGUMENTS and not is_complete:
            if name is None:
                early, _ = yield from captured(arguments(source))
            else:
                yield from arguments(source)
            is_complete = True
        else:
            yield from captured(value(source))
        yield from source.space()
        yield from source.accept(",")
    if name is None:
        raise Malformed
    if not is_complete:
        yield Part("arguments", "{}")


def arguments(source: Source) -> Reader[None]:
    """The arguments that are next, as the text of an object: some models write that text as a string, or null."""
    if (yield from source.more()) and source.text[source.at] == "{":
        yield from value(source)
    elif (yield from source.more()) and source.text[source.at] == '"':
        yield Part("arguments", (yield from string(source)))
    else:
        found, _ = yield from captured(value(source))
        yield Part("arguments", "{}" if found == "null" else found)


def loads(text: str) -> object:
    """A value out of JSON text; the text itself where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _name(source: Source, tools: Tools | None) -> Reader[str]:
    name = yield from string(source, LONGEST_NAME)
    if not name or (tools is not None and name not in tools):
        raise Malformed
    return name
