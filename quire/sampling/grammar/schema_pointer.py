"""Where in a JSON schema the keyword stands that a message of llguidance is about: it names the keyword, not the place.

Only places that hold schemas are looked at, so that a property that is called like a keyword is not mistaken for one.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

_ONE = frozenset(
    {
        *("items", "additionalItems", "unevaluatedItems", "contains", "additionalProperties", "unevaluatedProperties"),
        *("propertyNames", "not", "if", "then", "else", "contentSchema"),
    }
)
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")

_KEYS = re.compile(r"Unimplemented keys: \[(.*)\]")
_REF = re.compile(r"(?:Pointer|Resource) '(.*?)' ")

Find = Callable[[dict[str, Any]], str | None]
"""The keyword of a schema that is to blame; None: not this schema's."""


def pointer_of(schema: str, message: str) -> str | None:
    """A JSON pointer to the keyword; None where the message does not tell enough to find it."""
    find = _finder(message)
    if find is None:
        return None
    try:
        root = json.loads(schema)
    except (ValueError, RecursionError):
        return None
    for pointer, found in _schemas(root):
        keyword = find(found)
        if keyword is not None:
            return f"{pointer}/{_escaped(keyword)}"
    return None


def _finder(message: str) -> Find | None:
    unimplemented = _KEYS.match(message)
    if unimplemented is not None:
        keys = json.loads(f"[{unimplemented[1]}]")
        return lambda schema: next((key for key in keys if key in schema), None)
    reference = _REF.match(message)
    if reference is not None:
        wanted = reference[1]
        return lambda schema: "$ref" if str(schema.get("$ref")).endswith(wanted) else None
    kind, _, named = message.partition(": ")
    finders: dict[str, Find] = {
        "Unknown format": lambda schema: "format" if schema.get("format") == named else None,
        "Invalid type": lambda schema: "type" if named in (schema.get("type"), *_listed(schema.get("type"))) else None,
    }
    if message.startswith("oneOf constraints"):
        return lambda schema: "oneOf" if "oneOf" in schema else None
    if message.startswith("min/maxProperties"):
        return lambda schema: next((key for key in ("minProperties", "maxProperties") if key in schema), None)
    return finders.get(kind) or (_with_pattern(message) if "regex" in message else None)


def _with_pattern(message: str) -> Find:
    def find(schema: dict[str, Any]) -> str | None:
        patterns = {
            "pattern": [schema.get("pattern")],
            "patternProperties": list(schema.get("patternProperties") or ()),
        }
        for keyword, texts in patterns.items():
            if any(isinstance(text, str) and text in message for text in texts):
                return keyword
        return None

    return find


def _schemas(root: object) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema within a schema, outermost first, with its pointer. No recursion: clients nest as they like."""
    level: list[tuple[str, object]] = [("", root)]
    while level:
        inner: list[tuple[str, object]] = []
        for pointer, schema in level:
            if isinstance(schema, dict):
                yield pointer, schema
                inner += _within(pointer, schema)
        level = inner


def _within(pointer: str, schema: dict[str, Any]) -> Iterator[tuple[str, object]]:
    for keyword, value in schema.items():
        here = f"{pointer}/{_escaped(keyword)}"
        if keyword in _LISTS and isinstance(value, list):
            yield from ((f"{here}/{place}", each) for place, each in enumerate(value))
        elif keyword in _BY_NAME and isinstance(value, dict):
            yield from ((f"{here}/{_escaped(name)}", each) for name, each in value.items())
        elif keyword in _ONE:
            yield here, value


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
