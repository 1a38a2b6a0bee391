"""JSON schemas in few words. A field may always be null, which means that it is not given."""

from collections.abc import Mapping, Sequence
from typing import Any

Schema = dict[str, Any]

TOKEN_ID: Schema = {"type": "integer", "minimum": 0, "maximum": (1 << 31) - 1}


def whole(low: int, high: int, **more: Any) -> Schema:
    return {"type": ["integer", "null"], "minimum": low, "maximum": high, **more}


def number(low: float, high: float, *, low_open: bool = False, **more: Any) -> Schema:
    return {"type": ["number", "null"], "exclusiveMinimum" if low_open else "minimum": low, "maximum": high, **more}


def flag(**more: Any) -> Schema:
    return {"type": ["boolean", "null"], **more}


def text(longest: int, *, shortest: int = 0, **more: Any) -> Schema:
    return {"type": ["string", "null"], "minLength": shortest, "maxLength": longest, **more}


def words(*allowed: str, **more: Any) -> Schema:
    """One of a few."""
    return {"enum": [*allowed, None], **more}


def only(*allowed: Any, **more: Any) -> Schema:
    """A field that is known and of which nothing else can be done."""
    return {"enum": [*allowed, None], **more}


def items(item: Schema, most: int, *, least: int = 0, **more: Any) -> Schema:
    return {"type": ["array", "null"], "items": item, "minItems": least, "maxItems": most, **more}


def either(*schemas: Schema, **more: Any) -> Schema:
    return {"anyOf": list(schemas), **more}


def free_object(most: int, **more: Any) -> Schema:
    """Keys and values are the client's own."""
    return {"type": ["object", "null"], "maxProperties": most, **more}


def body(fields: Mapping[str, Schema], required: Sequence[str] = (), *, closed: bool = False, **more: Any) -> Schema:
    """An object of these fields; what is required may not be null either. Others change nothing, unless it is `closed`:
    there they are refused.
    """
    properties = {name: _not_null(schema) if name in required else schema for name, schema in fields.items()}
    found: Schema = {"type": "object", "properties": properties, **more}
    return (
        found | ({"required": list(required)} if required else {}) | ({"additionalProperties": False} if closed else {})
    )


def _not_null(schema: Schema) -> Schema:
    kinds = schema.get("type")
    if not isinstance(kinds, list):
        return schema
    rest = [kind for kind in kinds if kind != "null"]
    return {**schema, "type": rest[0] if len(rest) == 1 else rest}
