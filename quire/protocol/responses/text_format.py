"""The `text` field of a response: what language its answer belongs to."""

from typing import Any

from quire.core.structured import StructuredOutput
from quire.protocol.openai.fields import Fields
from quire.protocol.openai.schema import Schema, body, either
from quire.protocol.openai.structured_fields import NAMED_SCHEMA, read_format

PLAIN: dict[str, Any] = {"type": "text"}
_FORMAT: Schema = either(
    body({"type": {"const": "text"}}, required=("type",), closed=True),
    body({"type": {"const": "json_object"}}, required=("type",), closed=True),
    body({"type": {"const": "json_schema"}, **NAMED_SCHEMA}, required=("type", "schema"), closed=True),
    {"type": "null"},
    description="A language that the answer belongs to.",
)
TEXT: Schema = either(
    body(
        {
            "format": _FORMAT,
            "verbosity": {"type": ["string", "null"], "description": "The model's own, whatever it says."},
        }
    ),
    {"type": "null"},
)


def read_text(given: Fields) -> tuple[StructuredOutput | None, dict[str, Any]]:
    """What the answer must be, and the field as the response repeats it."""
    text = given.inside("text", given.object("text") or {}, ("format", "verbosity"))
    text.hint("verbosity", "medium")
    values = text.object("format")
    if values is None:
        return None, {"format": PLAIN}
    found = Fields(values, known=("type", *NAMED_SCHEMA), where="text.format.")  # it binds the answer: all of it counts
    return read_format(found, "text.format"), {"format": values}
