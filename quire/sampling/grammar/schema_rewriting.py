"""The same JSON schema in keywords that llguidance knows: dependencies, conditions over constants, exclusive choices.

What cannot be said exactly in other words is left as it is, for the compiler to refuse.
"""

import json
from collections.abc import Iterable
from functools import partial
from itertools import product
from typing import Any

from quire.sampling.grammar.schema_disjoint import are_disjoint, enumerated
from quire.sampling.grammar.schema_places import changed, parts, resolved

Schema = dict[str, Any]
_MOST_CLAUSES = 6
"""Dependencies of one schema: each doubles the number of cases."""
_MOST_CASES = 64
_DEFINITIONS = ("/$defs/", "/definitions/")
_ABOUT = frozenset({"const", "enum", "type", "title", "description", "default"})
"""What may stand beside constants in a condition."""


def rewritten(schema: Any) -> Any:
    """A schema that the same values satisfy."""
    return changed(schema, partial(_rewritten, root=schema))


def _rewritten(schema: Schema, root: Any) -> Schema:
    schema = _with_local_reference(schema, root)
    schema = _without_dependencies(schema)
    schema = _without_condition(schema, root)
    schema = _without_negation(schema)
    return _without_one_of(schema, root)


def _with_local_reference(schema: Schema, root: Any) -> Schema:
    """LiteLLM drops the `#` of references for Anthropic's API; without an `$id` they can mean nothing else."""
    match schema.get("$ref"):
        case str(reference) if reference.startswith(_DEFINITIONS) and "$id" not in root:
            keyword, name = parts(reference)[:2]
            definitions = root.get(keyword)
            if isinstance(definitions, dict) and name in definitions:
                return {**schema, "$ref": f"#{reference}"}
    return schema


def _and(schema: Schema, clauses: list[Schema]) -> Schema:
    return {**schema, "allOf": [*schema.get("allOf", []), *clauses]} if clauses else schema


def _absent(names: Iterable[str]) -> Schema:
    return {"properties": dict.fromkeys(names, False)}


# -- dependencies -------------------------------------------------------------------------------------------------


def _without_dependencies(schema: Schema) -> Schema:
    keywords = ("dependencies", "dependentRequired", "dependentSchemas")
    found = [
        (name, wanted)
        for keyword in keywords
        if isinstance(schema.get(keyword), dict)
        for name, wanted in schema[keyword].items()
    ]
    if not found or len(found) > _MOST_CLAUSES or not all(isinstance(each, dict | list | bool) for _, each in found):
        return schema
    clauses = [{"anyOf": [_absent([name]), _together(name, wanted)]} for name, wanted in found]
    return _and({keyword: value for keyword, value in schema.items() if keyword not in keywords}, clauses)


def _together(name: str, wanted: Any) -> Schema:
    if isinstance(wanted, list):
        return {"required": list(dict.fromkeys([name, *wanted]))}
    return {"required": [name], "allOf": [wanted]}


# -- conditions ---------------------------------------------------------------------------------------------------


def _without_condition(schema: Schema, root: Any) -> Schema:
    if "if" not in schema or schema.get("type") != "object":
        return schema
    rest = {name: value for name, value in schema.items() if name not in ("if", "then", "else")}
    cases = _cases(schema["if"], rest, root)
    if cases is None:
        return schema
    holds, fails = cases
    then, other = ([schema[name]] if name in schema else [] for name in ("then", "else"))
    return _and(rest, [{"anyOf": [{**holds, "allOf": then}, *({**each, "allOf": other} for each in fails)]}])


def _cases(condition: Any, schema: Schema, root: Any) -> tuple[Schema, list[Schema]] | None:
    """Where a condition over constants holds, and the ways in which it does not; None for any other condition."""
    if not isinstance(condition, dict) or not condition.keys() <= {"type", "properties", "required"}:
        return None
    if condition.get("type", "object") != "object":
        return None
    required, properties = condition.get("required", []), condition.get("properties", {})
    if not isinstance(required, list) or not isinstance(properties, dict) or not (required or properties):
        return None
    fails = [_absent([name]) for name in required]
    for name, given in properties.items():
        one = resolved(given, root)
        wanted = enumerated(one) if isinstance(one, dict) and one.keys() <= _ABOUT else None
        known = enumerated(resolved(schema.get("properties", {}).get(name), root))
        if wanted is None or known is None:
            return None
        others = [json.loads(value) for value in known if value not in wanted]
        if others:
            fails.append({"properties": {name: {"enum": others}}, "required": [name]})
    return {"properties": properties, "required": required}, fails


def _without_negation(schema: Schema) -> Schema:
    """`not` with nothing but one required property forbids that property."""
    match schema:
        case {"type": "object", "not": {"required": [str(name)], **others}} if not others:
            rest = {keyword: value for keyword, value in schema.items() if keyword != "not"}
            return _and(rest, [_absent([name])])
    return schema


# -- exclusive choices --------------------------------------------------------------------------------------------


def _without_one_of(schema: Schema, root: Any) -> Schema:
    choices = schema.get("oneOf")
    if not isinstance(choices, list) or not 0 < len(choices) <= _MOST_CASES:
        return schema
    rest = {keyword: value for keyword, value in schema.items() if keyword not in ("oneOf", "discriminator")}
    pairs = ((one, other) for place, one in enumerate(choices) for other in choices[:place])
    if all(are_disjoint(one, other, root) for one, other in pairs):
        return _and(rest, [{"anyOf": choices}]) if "anyOf" in rest else {**rest, "anyOf": choices}
    exact = _exactly_one(choices) if schema.get("type") == "object" else None
    return schema if exact is None else _and(rest, [{"anyOf": exact}])


def _exactly_one(choices: list[Any]) -> list[Schema] | None:
    """Of choices that only require properties: one holds, and each other lacks some property."""
    if not all(isinstance(each, dict) and each.keys() == {"required"} for each in choices):
        return None
    found: list[Schema] = []
    for one in choices:
        others = [other["required"] for other in choices if other is not one]
        missing = [[name for name in each if name not in one["required"]] for each in others]
        for names in product(*missing):
            found.append({"required": one["required"], **_absent(names)})
            if len(found) > _MOST_CASES:
                return None
    return found or None
