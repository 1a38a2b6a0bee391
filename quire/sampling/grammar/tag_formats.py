"""What a structural tag describes: texts made of fixed, constrained and free parts. Plain data.

Every format that ends only where something else says so knows its place in what the client wrote, for errors.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Words:
    """Exactly this text."""

    text: str


@dataclass(frozen=True, slots=True)
class Json:
    """JSON that a schema describes."""

    schema: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Pattern:
    regex: str


@dataclass(frozen=True, slots=True)
class ContextFree:
    grammar: str


@dataclass(frozen=True, slots=True)
class FreeText:
    """Anything without `excluded`, up to the end of the tag that it stands in."""

    excluded: tuple[str, ...]
    pointer: str


@dataclass(frozen=True, slots=True)
class InOrder:
    elements: tuple["Format", ...]


@dataclass(frozen=True, slots=True)
class Either:
    elements: tuple["Format", ...]


@dataclass(frozen=True, slots=True)
class Repeated:
    content: "Format"
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Tag:
    begin: str
    content: "Format"
    ends: tuple[str, ...]
    """One of these."""
    pointer: str


@dataclass(frozen=True, slots=True)
class Triggered:
    """Free text in which each trigger begins one of the tags that begin with it."""

    triggers: tuple[str, ...]
    tags: tuple[Tag, ...]
    excluded: tuple[str, ...]
    at_least_one: bool
    """It begins with a tag."""
    stop_after_first: bool
    pointer: str


@dataclass(frozen=True, slots=True)
class Separated:
    """Tags, with nothing but the separator between them."""

    tags: tuple[Tag, ...]
    separator: str
    at_least_one: bool
    stop_after_first: bool


Format = Words | Json | Pattern | ContextFree | FreeText | InOrder | Either | Repeated | Tag | Triggered | Separated
