"""Schemas of every kind that text can be generated for, after the chapters of the JSON Schema test suite."""

from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]

TYPES = ("string", "integer", "number", "boolean", "null", "object", "array")
SMALL: Schema = {"type": "integer", "minimum": 0, "maximum": 9}
WORD: Schema = {"type": "string", "maxLength": 4}
FORMATS = ("date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri")
PATTERNS = (
    *("^a+$", "b", "^[0-9]{3}$", "^(x|y){2}$", "^\\d{2}-\\d{2}$", "^[^a-z]{1,3}$", "c$", "^d", "^\\w+$", "^(|ab)$"),
    *("^\\S{2}$", "^[A-Fa-f0-9]{4}$", "^a.b$", "^(foo|bar)?baz$", "^[\\u00e0-\\u00ff]{2}$"),
)
VALUES: tuple[Any, ...] = (
    0,
    -1,
    1.5,
    1e3,
    "",
    "a",
    'q"\\',
    "é🙂",
    True,
    False,
    None,
    [],
    [1, [2]],
    {},
    {"a": {"b": None}},
)
NAMES = ("plain", "with space", 'quo"te', "back\\slash", "slash/and~tilde", "é", "$ref", "", "a.b", "line\nbreak")


def closed(properties: Schema, required: list[str] | None = None) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": sorted(properties) if required is None else required,
        "additionalProperties": False,
    }


def all_schemas() -> dict[str, Schema]:
    """By a name that says its chapter."""
    chapters = {
        "type": _types(),
        "enum": _enums(),
        "number": _numbers(),
        "string": _strings(),
        "object": _objects(),
        "array": _arrays(),
        "combined": _combined(),
        "ref": _references(),
    }
    return {f"{name} {place}": schema for name, schemas in chapters.items() for place, schema in enumerate(schemas)}


def _types() -> Iterator[Schema]:
    yield from ({"type": name} for name in TYPES)
    yield from ({"type": [one, other]} for one in TYPES[:5] for other in ("null", "array") if one != other)
    yield {}
    yield from (closed({"value": {"type": name}}) for name in TYPES)
    yield from ({"type": "array", "items": {"type": name}, "maxItems": 1} for name in TYPES)
    yield {"title": "t", "description": "d", "default": 1, "examples": [2], "$comment": "c", "type": "boolean"}
    yield {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://example.org/s", "type": "null"}


def _enums() -> Iterator[Schema]:
    yield from ({"const": value} for value in VALUES)
    yield {"enum": list(VALUES)}
    yield from ({"enum": [value, "other"]} for value in VALUES)
    yield {"type": "string", "enum": ["a", "b"]}
    yield {"type": "integer", "enum": [1, 2, 3]}
    yield {"enum": [f"choice {number}" for number in range(300)]}


def _numbers() -> Iterator[Schema]:
    for low, high in ((0, 9), (-5, 5), (100, 120), (-300, -250), (7, 7), (0, 10**9)):
        yield {"type": "integer", "minimum": low, "maximum": high}
        yield {"type": "number", "minimum": low, "maximum": high}
    yield {"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 6}
    yield {"type": "number", "exclusiveMinimum": 0, "maximum": 1}
    yield {"type": "integer", "minimum": 1000}
    yield {"type": "integer", "maximum": -3}
    yield {"type": "number", "minimum": 0.5, "maximum": 0.75}
    yield from ({"type": "integer", "multipleOf": number, "minimum": 0, "maximum": 99} for number in (2, 5, 7))
    yield {"type": "number", "multipleOf": 0.5, "minimum": 0, "maximum": 9}
    yield {"minimum": 3, "maximum": 5}
    yield from (closed({"n": {"type": "number", "minimum": low, "maximum": low + 0.25}}) for low in (0, -1.5, 99.5))
    yield {"type": ["integer", "null"], "minimum": 1, "maximum": 2}
    yield {"type": "integer", "multipleOf": 3, "exclusiveMinimum": 0, "exclusiveMaximum": 30}


def _strings() -> Iterator[Schema]:
    yield from (
        {"type": "string", "minLength": low, "maxLength": high} for low, high in ((0, 0), (1, 3), (5, 5), (0, 20))
    )
    yield from ({"type": "string", "pattern": pattern} for pattern in PATTERNS)
    yield from ({"type": "string", "format": name} for name in FORMATS)
    yield {"type": "string", "pattern": "^[ab]+$", "maxLength": 3}
    yield {"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 4}
    yield {"maxLength": 2}
    yield from (closed({"s": {"type": "string", "pattern": pattern}}) for pattern in PATTERNS[:6])


def _objects() -> Iterator[Schema]:
    yield from (closed({name: SMALL}) for name in NAMES)
    yield closed({})
    yield closed({"a": SMALL, "b": WORD}, [])
    yield closed({"a": SMALL, "b": WORD, "c": {"type": "boolean"}}, ["b"])
    yield closed({f"p{number}": SMALL for number in range(25)})
    yield closed({"outer": closed({"inner": closed({"leaf": WORD})})})
    yield {"type": "object", "additionalProperties": SMALL, "maxProperties": 2}
    yield {"type": "object", "additionalProperties": WORD, "minProperties": 1, "maxProperties": 2}
    yield {"type": "object", "properties": {"a": SMALL}, "additionalProperties": {"type": "null"}, "maxProperties": 3}
    yield {"type": "object", "patternProperties": {"^x[0-9]$": SMALL}, "additionalProperties": False}
    yield {"type": "object", "patternProperties": {"^a": WORD, "^b": SMALL}, "additionalProperties": False}
    yield {"type": "object", "required": ["free"]}
    yield {"type": "object", "required": ["a"], "properties": {"a": False, "b": SMALL}}
    yield {"properties": {"a": SMALL}, "required": ["a"]}
    yield {"type": "object", "propertyNames": {"maxLength": 2}}
    yield {"type": "object", "dependentRequired": {"a": ["b"]}}


def _arrays() -> Iterator[Schema]:
    yield from (
        {"type": "array", "items": item, "minItems": low, "maxItems": high}
        for item in (SMALL, WORD, {"type": ["null", "boolean"]})
        for low, high in ((0, 0), (1, 1), (0, 3), (2, 4))
    )
    yield {"type": "array", "prefixItems": [SMALL, WORD], "items": False}
    yield {"type": "array", "prefixItems": [SMALL, WORD], "items": False, "minItems": 2}
    yield {"type": "array", "prefixItems": [SMALL], "items": {"type": "null"}, "maxItems": 3}
    yield {"type": "array", "items": {"type": "array", "items": SMALL, "maxItems": 2}, "maxItems": 2}
    yield {"type": "array", "items": closed({"a": SMALL}), "maxItems": 2}
    yield {"type": "array", "items": False}
    yield {"type": "array", "items": SMALL, "uniqueItems": True}
    yield {"type": "array", "contains": SMALL}


def _combined() -> Iterator[Schema]:
    yield {"anyOf": [SMALL, WORD]}
    yield {"anyOf": [closed({"a": SMALL}), closed({"b": WORD})]}
    yield {"anyOf": [{"type": "null"}, {"type": "array", "items": SMALL, "maxItems": 2}]}
    yield {"type": "string", "anyOf": [{"maxLength": 1}, {"pattern": "^zz$"}]}
    yield {"allOf": [{"type": "integer"}, {"minimum": 2}, {"maximum": 4}]}
    yield {"allOf": [closed({"a": SMALL}), {"properties": {"a": {"minimum": 5}}}]}
    yield {"allOf": [{"type": "string", "minLength": 1}, {"type": "string", "maxLength": 2}]}
    yield {"allOf": [{"enum": [1, 2, 3]}, {"enum": [2, 3, 4]}]}
    yield {"type": "object", "properties": {"a": SMALL}, "allOf": [{"required": ["a"]}], "additionalProperties": False}
    yield {"oneOf": [{"type": "integer", "maximum": 3, "minimum": 0}, {"type": "boolean"}]}
    yield {"oneOf": [closed({"kind": {"const": "a"}, "x": SMALL}), closed({"kind": {"const": "b"}, "y": WORD})]}
    yield {"oneOf": [{"const": 1}, {"const": 2}]}
    yield {"oneOf": [{"type": "integer"}, {"type": "number"}]}
    yield {"not": {"type": "string"}}
    yield {"if": {"type": "string"}, "then": {"maxLength": 1}}
    yield {"anyOf": [{"allOf": [SMALL, {"minimum": 5}]}, {"anyOf": [{"const": "x"}, {"const": "y"}]}]}


def _references() -> Iterator[Schema]:
    yield {"$defs": {"n": SMALL}, "$ref": "#/$defs/n"}
    yield {"definitions": {"n": SMALL}, "type": "array", "items": {"$ref": "#/definitions/n"}, "maxItems": 2}
    yield {
        "$defs": {"a/b": SMALL, "c~d": WORD},
        **closed({"x": {"$ref": "#/$defs/a~1b"}, "y": {"$ref": "#/$defs/c~0d"}}),
    }
    yield closed({"a": SMALL, "b": {"$ref": "#/properties/a"}})
    yield {
        "$defs": {"node": closed({"value": SMALL, "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}})},
        "$ref": "#/$defs/node",
    }
    yield {
        "$defs": {"tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2}},
        "$ref": "#/$defs/tree",
    }
    yield closed({"self": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}})
    yield {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": WORD}, "$ref": "#/$defs/a"}
    yield {
        "$defs": {
            "even": closed({"n": {"$ref": "#/$defs/odd"}}, []),
            "odd": closed({"n": {"$ref": "#/$defs/even"}}, []),
        },
        "$ref": "#/$defs/even",
    }
    yield {"$defs": {"n": SMALL}, "allOf": [{"$ref": "#/$defs/n"}, {"minimum": 5}]}
    yield {"$ref": "https://example.org/elsewhere"}
