"""Whether no value satisfies both of two schemas: by their types, their constants, or a property that differs."""

import json
from typing import Any

from quire.sampling.grammar.schema_places import resolved

_TYPES = frozenset({"null", "boolean", "object", "array", "string", "number"})
_DEEPEST = 4


def are_disjoint(one: Any, other: Any, root: Any, depth: int = 0) -> bool:
    """True only where that is certain; `root` is the document that references are about."""
    one, other = resolved(one, root), resolved(other, root)
    if one is False or other is False:
        return True
    if not isinstance(one, dict) or not isinstance(other, dict) or depth > _DEEPEST:
        return False
    if not _types(one) & _types(other):
        return True
    constants = enumerated(one), enumerated(other)
    if None not in constants:
        return not constants[0] & constants[1]  # type: ignore[operator]
    if _types(one) != {"object"} and _types(other) != {"object"}:
        return False
    names = {*_required(one), *_required(other)}
    return any(_tells_apart(name, one, other, root, depth) for name in names)


def enumerated(schema: Any) -> frozenset[str] | None:
    """All values that satisfy a schema, as JSON, where it lists them."""
    if not isinstance(schema, dict):
        return None
    if "const" in schema:
        return frozenset([_written(schema["const"])])
    if isinstance(schema.get("enum"), list):
        return frozenset(map(_written, schema["enum"]))
    return frozenset(["true", "false"]) if schema.get("type") == "boolean" else None


def _tells_apart(name: str, one: dict[str, Any], other: dict[str, Any], root: Any, depth: int) -> bool:
    """Whether values of a property that is there cannot be both's."""
    mine, others = _property(one, name), _property(other, name)
    return are_disjoint(mine, others, root, depth + 1)


def _property(schema: dict[str, Any], name: str) -> Any:
    properties = schema.get("properties")
    if isinstance(properties, dict) and name in properties:
        return properties[name]
    # what is not listed is free, unless nothing else may be there
    return schema.get("additionalProperties") is not False or "patternProperties" in schema


def _required(schema: dict[str, Any]) -> list[str]:
    found = schema.get("required")
    return found if isinstance(found, list) else []


def _types(schema: dict[str, Any]) -> frozenset[str]:
    """What a schema allows; an integer is a number."""
    given = schema.get("type")
    names = [given] if isinstance(given, str) else given if isinstance(given, list) else None
    found = _TYPES if names is None else frozenset("number" if name == "integer" else name for name in names)
    constants = enumerated(schema) if "const" in schema or "enum" in schema else None
    return found if constants is None else found & {_type(value) for value in constants}


def _type(written: str) -> str:
    kinds = {"n": "null", "t": "boolean", "f": "boolean", "{": "object", "[": "array", '"': "string"}
    return kinds.get(written[0], "number")


def _written(value: Any) -> str:
    """Equal values of JSON are written alike: 1.0 is 1, and true is not."""
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    return json.dumps(whole, sort_keys=True)
