"""Arguments that are written one by one rather than as a JSON object: what a schema says of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quire.core.errors import InvalidRequest
from quire.protocol.parsers.tools import Function

_COMBINED = ("$ref", "anyOf", "oneOf", "allOf", "if", "patternProperties")


@dataclass(frozen=True, slots=True)
class Flat:
    """One argument."""

    name: str
    schema: Mapping[str, Any]
    required: bool


def flat_parameters(function: Function) -> list[Flat]:
    """Those of a function, required ones first. A schema that is more than a list of properties is refused."""
    schema = function.schema()
    combined = next((word for word in _COMBINED if word in schema), None)
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if combined is not None or not isinstance(properties, Mapping) or not isinstance(required, list):
        raise InvalidRequest(
            f"the parameters of {function.name} use {combined or 'properties'!r} in a way that the model's call format "
            "cannot be held to, for it writes arguments one by one; list them under properties, or leave strict and "
            "tool_choice out",
            field="tools",
        )
    shared = {word: schema[word] for word in ("$defs", "definitions") if word in schema}
    flat = [
        Flat(name, {**(one if isinstance(one, Mapping) else {}), **shared}, name in required)
        for name, one in properties.items()
    ]
    return sorted(flat, key=lambda each: not each.required)
