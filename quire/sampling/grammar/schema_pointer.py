"""Where in a JSON schema the keyword stands that a message of llguidance is about: it names no place."""

import json
import re
from collections.abc import Callable
from typing import Any

from quire.sampling.grammar.schema_places import escaped, schemas

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
    for pointer, found in schemas(root):
        keyword = find(found)
        if keyword is not None:
            return f"{pointer}/{escaped(keyword)}"
    return None


def _finder(message: str) -> Find | None:
    unimplemented = _KEYS.match(message)
    if unimplemented is not None:
        keys = json.loads(f"[{unimplemented[1]}]")
        return lambda schema: next((key for key in keys if key in schema), None)
    reference = _REF.match(message)
    if reference is not None:
        wanted = reference[1]
        return lambda schema: next((key for key in ("$ref", "$schema") if str(schema.get(key)).endswith(wanted)), None)
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


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []
