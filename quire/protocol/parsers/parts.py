"""What is found in the text of an answer: pieces of thinking, of content and of tool calls, as they are told apart."""

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Literal, TypeVar

from quire.core.message import AnswerMessage, ToolCall

Kind = Literal["reasoning", "content", "call", "arguments", "input"]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of an answer. Pieces of one kind, joined, are the whole of it, wherever the text was cut."""

    kind: Kind
    text: str
    """Of a call: the function's name. Of arguments: a piece of their JSON. Of input: a piece of the text that a call of
    free text has in their place."""
    number: int = 0
    """Which call of the answer it belongs to, from 0."""
    identity: str = ""
    """The id of the call that begins here."""


def add_parts(message: AnswerMessage, parts: Iterable[Part]) -> None:
    """Put more of an answer to what there is of it."""
    for part in parts:
        if part.kind == "reasoning":
            message.reasoning += part.text
        elif part.kind == "content":
            message.content += part.text
        elif part.kind == "call":
            message.calls.append(ToolCall(part.identity, part.text))
        else:
            message.calls[part.number].arguments += part.text


Reader = Generator[Part | None, None, _T]
"""Reads from a Source: yields what it finds, and None when it needs more text to go on."""


class Malformed(Exception):
    """The text is not what a reader reads, or ended too early for it."""


def captured(reader: Reader[_T]) -> Reader[tuple[str, _T]]:
    """Run a reader and keep what it finds, as one text, instead of passing it on; with what it returns."""
    found: list[str] = []
    returned = yield from changed(reader, lambda part: found.append(part.text))
    return "".join(found), returned


def changed(reader: Reader[_T], change: Callable[[Part], Part | None]) -> Reader[_T]:
    """Run a reader and pass on what becomes of each part; one that becomes None is left out."""
    while True:
        try:
            part = next(reader)
        except StopIteration as end:
            returned: _T = end.value
            return returned
        if part is None:
            yield None
        elif (new := change(part)) is not None:
            yield new
