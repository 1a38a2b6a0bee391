"""The fields of a body that ask for structured output: OpenAI's response_format, and vLLM's names for the same."""

import json
from typing import Any

import msgspec

from quire.core.errors import InvalidRequest
from quire.core.structured import MAX_CHOICES, MAX_GRAMMAR_LENGTH, StructuredOutput
from quire.protocol.openai.fields import Fields, refuse
from quire.protocol.openai.free_form import check_free_form
from quire.protocol.openai.schema import Schema, body, either, flag, free_object, items, only, text

MOST_KEYS = 10_000
MOST_SCHEMA_VALUES = 100_000
DEEPEST_SCHEMA = 120
"""Levels of a JSON schema; the compiler goes no deeper either."""
LONGEST_NAME = 64
LONGEST_DESCRIPTION = 65_536
_TAG_PARTS = ("format", "structures", "triggers")
FORMATS = ("text", "json_object", "json_schema", "structural_tag")

_GRAMMAR: Schema = text(MAX_GRAMMAR_LENGTH, shortest=1)
_JSON_SCHEMA: Schema = either(free_object(MOST_KEYS), _GRAMMAR, description="A JSON schema, also as JSON text.")
_CHOICE: Schema = items({"type": "string", "minLength": 1, "maxLength": 65_536}, MAX_CHOICES, least=1)
NAMED_SCHEMA: dict[str, Schema] = {
    "name": text(LONGEST_NAME, description="The client's own; it changes nothing."),
    "description": text(LONGEST_DESCRIPTION),
    "schema": free_object(MOST_KEYS),
    "strict": flag(
        description="True: what no grammar can say of the schema is refused. False, which is the default: the finished "
        "answer is validated instead, and schema_errors says where it falls short."
    ),
}
"""OpenAI's json_schema object."""
_TAG: dict[str, Schema] = {"type": {"const": "structural_tag"}, "format": free_object(MOST_KEYS)}
_OLDER_TAG: dict[str, Schema] = {
    "type": {"const": "structural_tag"},
    "structures": items({"type": "object"}, 256, least=1),
    "triggers": items({"type": "string", "minLength": 1, "maxLength": 1024}, 256, least=1),
}
RESPONSE_FORMAT: Schema = either(
    body({"type": {"const": "text"}}, required=("type",), closed=True),
    body({"type": {"const": "json_object"}, "schema": free_object(MOST_KEYS)}, required=("type",), closed=True),
    body(
        {"type": {"const": "json_schema"}, "json_schema": body(NAMED_SCHEMA, closed=True)},
        required=("type", "json_schema"),
        closed=True,
    ),
    body(_TAG, required=("type", "format"), closed=True),
    body(_OLDER_TAG, required=("type", "structures", "triggers"), closed=True),
    {"type": "null"},
    description="A language that the answer belongs to, whatever the model would have said.",
)
_OUTPUTS: dict[str, Schema] = {
    "json": _JSON_SCHEMA,
    "json_object": only(True),
    "regex": _GRAMMAR,
    "choice": _CHOICE,
    "grammar": text(MAX_GRAMMAR_LENGTH, shortest=1, description="In the notation of Lark, or GBNF."),
    "structural_tag": _GRAMMAR,
    "disable_any_whitespace": only(True, description="JSON is laid out in one way anyway."),
}
STRUCTURED: dict[str, Schema] = {
    "response_format": RESPONSE_FORMAT,
    "structured_outputs": either(body(_OUTPUTS, closed=True), {"type": "null"}, description="Exactly one language."),
    "guided_json": _JSON_SCHEMA,
    "guided_regex": _GRAMMAR,
    "guided_choice": _CHOICE,
    "guided_grammar": _GRAMMAR,
}
"""At most one of them may be given."""
UNSUPPORTED = {
    "guided_whitespace_pattern": "JSON is laid out as Python's json.dumps does; leave it out",
}


def read_structured(given: Fields) -> tuple[StructuredOutput | None, str]:
    """What of `STRUCTURED` a body asks for, None where it asks for text, and the name of the field that does. Where
    none does, tools are all that may bind its answer.
    """
    found = {
        name: output
        for name, output in {
            "response_format": _response_format(given),
            "structured_outputs": _structured_outputs(given),
            "guided_json": _guided_json(given, "guided_json"),
            "guided_regex": _text(given, "guided_regex", "regex"),
            "guided_choice": _choice(given, "guided_choice"),
            "guided_grammar": _text(given, "guided_grammar", "grammar"),
        }.items()
        if output is not None
    }
    if len(found) > 1:
        names = list(found)
        raise InvalidRequest(
            f"{' and '.join(names)} each ask for structured output; leave all but one out", field=names[-1]
        )
    return next(((output, name) for name, output in found.items()), (None, "tools"))


def read_format(given: Fields, where: str) -> StructuredOutput | None:
    """OpenAI's format object with the schema's fields beside its type, as the Responses API has it."""
    kind = given.one_of("type", ("text", "json_object", "json_schema"))
    if kind != "json_schema":
        _refuse_others(given, where, NAMED_SCHEMA)
        if kind is None:
            raise refuse(f"{where}.type", None, "one of text, json_object, json_schema")
        return StructuredOutput(json_object=True) if kind == "json_object" else None
    return _named_schema(given, where)


def _response_format(body_fields: Fields) -> StructuredOutput | None:
    values = body_fields.object("response_format")
    if values is None:
        return None
    where = "response_format"
    # what it says of the answer's language is never left out: no `ignored`
    given = Fields(values, known=("type", "json_schema", "schema", *_TAG_PARTS), where=f"{where}.")
    kind = given.one_of("type", FORMATS)
    if kind is None:
        raise refuse(f"{where}.type", None, f"one of {', '.join(FORMATS)}")
    if kind == "structural_tag":
        _refuse_others(given, where, ("json_schema", "schema"))
        return _structural_tag(values, given, where)
    _refuse_others(given, where, _TAG_PARTS)
    schema = given.object("schema")
    if kind == "json_object" and schema is not None:  # as llama.cpp and Together write a schema
        _refuse_others(given, where, ("json_schema",))
        return read_schema(schema, f"{where}.schema")
    _refuse_others(given, where, ("schema",))
    if kind == "json_schema":
        named = given.object("json_schema")
        if named is None:
            raise refuse(f"{where}.json_schema", None, "an object with a schema")
        where = f"{where}.json_schema"
        return _named_schema(Fields(named, known=NAMED_SCHEMA, where=f"{where}."), where)
    _refuse_others(given, where, ("json_schema",))
    return StructuredOutput(json_object=True) if kind == "json_object" else None


def _structured_outputs(body_fields: Fields) -> StructuredOutput | None:
    values = body_fields.object("structured_outputs")
    if values is None:
        return None
    given = Fields(values, known=_OUTPUTS, where="structured_outputs.")
    given.only("disable_any_whitespace", True)
    given.only("json_object", True)
    outputs = [
        _guided_json(given, "json", "structured_outputs."),
        StructuredOutput(json_object=True) if "json_object" in given else None,
        _choice(given, "choice"),
        *(_text(given, name, name) for name in ("regex", "grammar", "structural_tag")),
    ]
    found = [output for output in outputs if output is not None]
    if len(found) > 1:
        raise refuse("structured_outputs", sorted(values), "an object with one language")
    return found[0] if found else None


def _named_schema(given: Fields, where: str) -> StructuredOutput:
    given.text("name", longest=LONGEST_NAME)
    given.text("description", longest=LONGEST_DESCRIPTION)
    return read_schema(given.object("schema") or {}, f"{where}.schema", strict=given.flag("strict"))


def _guided_json(given: Fields, name: str, where: str = "") -> StructuredOutput | None:
    value = given.get(name)
    if value is None or isinstance(value, str):
        return _text(given, name, "json")
    if not isinstance(value, dict):
        raise refuse(where + name, value, "a JSON schema, as an object or as JSON text")
    return read_schema(value, where + name)


def read_schema(schema: dict[str, Any], where: str, *, strict: bool = True) -> StructuredOutput:
    """A JSON schema within its bounds, as the engine takes it. Not `strict`: what no grammar can say is left out."""
    if len(schema) > MOST_KEYS:
        raise refuse(where, f"an object of {len(schema)} keys", f"an object of at most {MOST_KEYS} keys")
    check_free_form(where, schema, most=MOST_SCHEMA_VALUES, deepest=DEEPEST_SCHEMA)
    return msgspec.structs.replace(_with_text(where, "json", json.dumps(schema)), strict=strict)


def _text(given: Fields, name: str, language: str) -> StructuredOutput | None:
    value = given.text(name, longest=MAX_GRAMMAR_LENGTH, shortest=1)
    return None if value is None else _language(language, value)


def _choice(given: Fields, name: str) -> StructuredOutput | None:
    value = given.list(name, MAX_CHOICES)
    if value is None:
        return None
    if not value or not all(isinstance(each, str) and 0 < len(each) <= 65_536 for each in value):
        raise refuse(name, value, f"a list of 1 to {MAX_CHOICES} texts, none of them empty")
    return StructuredOutput(choice=tuple(value))


def _structural_tag(values: dict[str, Any], given: Fields, where: str) -> StructuredOutput:
    if given.object("format") is None:
        for name in ("structures", "triggers"):
            if not given.list(name, 256):
                raise refuse(f"{where}.{name}", given.get(name), "a list of 1 to 256, or give format instead")
    check_free_form(where, values, most=MOST_SCHEMA_VALUES, deepest=DEEPEST_SCHEMA)
    return _with_text(where, "structural_tag", json.dumps(values))


def _with_text(where: str, language: str, written: str) -> StructuredOutput:
    if len(written) > MAX_GRAMMAR_LENGTH:
        raise refuse(where, f"{len(written)} characters of JSON", f"at most {MAX_GRAMMAR_LENGTH} characters")
    return _language(language, written)


def _language(name: str, written: str) -> StructuredOutput:
    fields: dict[str, Any] = {name: written}
    return StructuredOutput(**fields)


def _refuse_others(given: Fields, where: str, names: Any) -> None:
    for name in names:
        if name in given:
            raise refuse(f"{where}.{name}", given.get(name), "left out with this type")
