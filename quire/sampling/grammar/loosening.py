"""Leaving out of a JSON schema what no grammar can say, keyword by keyword, until the rest compiles."""

import json
from collections.abc import Callable
from typing import Any

from quire.core.structured import Loosened, StructuredOutput
from quire.sampling.grammar.errors import GrammarError
from quire.sampling.grammar.language import exact_schema
from quire.sampling.grammar.schema_places import parts

MOST_LEFT_OUT = 64
_NEVER = ("$ref", "type")
"""What a reference to another document stands for, nobody could validate either; a type that is none is a mistake."""


def loosened(structured: StructuredOutput, check: Callable[[StructuredOutput], None]) -> Loosened:
    """The schema without the keywords that `check` refuses; raises its GrammarError where that does not help."""
    assert structured.json is not None
    try:
        schema = json.loads(exact_schema(structured.json))
    except ValueError as error:
        raise GrammarError(f"the JSON schema is no JSON object that can be read: {error}") from None
    left_out: list[str] = []
    while True:
        found = StructuredOutput(json=json.dumps(schema))
        try:
            check(found)
            # where nothing is missing, engines know it by the same name as one that is strict
            return Loosened(found if left_out else StructuredOutput(json=structured.json), tuple(left_out))
        except GrammarError as error:
            if error.pointer is None or parts(error.pointer)[-1] in _NEVER or len(left_out) >= MOST_LEFT_OUT:
                raise
            left_out.append(error.pointer)
            _leave_out(schema, error.pointer)


def _leave_out(schema: Any, pointer: str) -> None:
    *before, keyword = parts(pointer)
    for part in before:
        schema = schema[int(part)] if isinstance(schema, list) else schema[part]
    value = schema.pop(keyword)
    if keyword == "oneOf":  # at least one is what remains of exactly one
        schema["allOf"] = [*schema.get("allOf", []), {"anyOf": value}]
    elif keyword == "if":  # the others mean nothing without it
        schema.pop("then", None)
        schema.pop("else", None)
