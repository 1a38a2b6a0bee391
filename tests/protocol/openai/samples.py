"""Values at the bounds of a JSON schema: those it allows, and their nearest neighbours that it does not."""

from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator

Schema = dict[str, Any]


def good(schema: Schema) -> list[Any]:
    """Allowed values; every bound is touched."""
    if "anyOf" in schema:
        return [value for each in schema["anyOf"] for value in good(each)]
    if "enum" in schema:
        return list(schema["enum"])
    if "const" in schema:
        return [schema["const"]]
    return [value for kind in _kinds(schema) for value in _good(kind, schema)]


def bad(schema: Schema) -> list[Any]:
    """Values that are not allowed, one for every bound and some of other types."""
    if "anyOf" in schema:
        values = [value for each in schema["anyOf"] for value in bad(each)]
        return [value for value in values if not Draft202012Validator(schema).is_valid(value)]
    if "enum" in schema or "const" in schema:
        return ["no such word", 5, {"a": 1}]
    kinds = _kinds(schema)
    return _other_types(set(kinds)) + [value for kind in kinds for value in _bad(kind, schema)]


def _kinds(schema: Schema) -> list[str]:
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        return ["integer" if isinstance(value, int) else "string" for value in values]
    kinds = schema["type"]
    return kinds if isinstance(kinds, list) else [kinds]


def _other_types(kinds: set[str]) -> list[Any]:
    others: dict[str, Any] = {"string": "text", "boolean": True, "object": {"some": "thing"}}
    if not kinds & {"integer", "number"}:
        others["integer"] = 5
    if "number" not in kinds:
        others["number"] = 1.5
    if "array" not in kinds:
        others["array"] = [None]
    return [value for kind, value in others.items() if kind not in kinds]


def _good(kind: str, schema: Schema) -> list[Any]:
    plain: dict[str, list[Any]] = {"null": [None], "boolean": [True, False]}
    if kind in plain:
        return plain[kind]
    if kind == "string":
        return _good_texts(schema)
    match kind:
        case "integer":
            return [schema["minimum"], schema["maximum"]]
        case "number":
            low = schema.get("minimum", schema.get("exclusiveMinimum"))
            return [low + (schema["maximum"] - low) / 2, schema["maximum"], *([low] if "minimum" in schema else [])]
        case "array":
            return _good_lists(schema)
    return _good_objects(schema)


def _good_texts(schema: Schema) -> list[str]:
    if "contentMediaType" in schema:
        return ['{"a": [1]}', ""]
    lengths = (schema.get("minLength", 0), schema["maxLength"]) if "maxLength" in schema else ()
    return [_text(length) for length in lengths] or ["request-1"]


@lru_cache(maxsize=8)
def _text(length: int) -> str:
    """Kept, as a schema allows texts of a quarter of a gigabyte in many places: each would take its time and memory."""
    return "x" * length


def _good_lists(schema: Schema) -> list[Any]:
    item = good(schema["items"])
    most = min(schema["maxItems"], 2000)  # of the largest values, more would take long
    least = [] if schema.get("minItems") else [[]]
    return [[value] for value in item if value is not None] + [[item[0]] * most, *least]


def _good_objects(schema: Schema) -> list[Any]:
    fields = schema.get("properties", {})
    required = {name: good(fields[name])[0] for name in schema.get("required", ())}
    more = [required | {name: value} for name, each in fields.items() for value in good(each)]
    values = schema.get("additionalProperties")
    if isinstance(values, dict):
        more += [{"7": value} for value in good(values)]
    return [required, *more]


def _bad(kind: str, schema: Schema) -> list[Any]:
    match kind:
        case "integer":
            return [schema["minimum"] - 1, schema["maximum"] + 1, 10**400]
        case "number":
            low = [schema["minimum"] - 1e-3] if "minimum" in schema else [schema["exclusiveMinimum"]]
            return [*low, schema["maximum"] + 1e-3, float("nan"), float("inf"), 10**400]
        case "string":
            if "pattern" in schema:
                return ["", "a b", "a\n", "x" * 129]
            return [_text(schema["maxLength"] + 1), *([""] if schema.get("minLength") else [])]
        case "array":
            item = good(schema["items"])[0]
            most = schema["maxItems"]  # checking a list of millions would take minutes
            return [[item] * (most + 1)] * (most <= 10_000) + [[]] * bool(schema.get("minItems"))
    return _bad_objects(schema) if kind == "object" else []


def _bad_objects(schema: Schema) -> list[Any]:
    found: list[Any] = []
    if schema.get("additionalProperties") is False:
        found.append({"no_such_field": 1})
    if isinstance(schema.get("additionalProperties"), dict):
        found += [{"7": value} for value in bad(schema["additionalProperties"])]
    if "maxProperties" in schema:
        found.append({str(number): 1 for number in range(schema["maxProperties"] + 1)})
    return found
