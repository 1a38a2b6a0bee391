"""What Anthropic's `output_config` asks for: a language of the answer, and how much is thought about it."""

from functools import partial

from quire.core.structured import StructuredOutput
from quire.protocol.openai.fields import Fields, refuse
from quire.protocol.openai.schema import Schema, body, either, words
from quire.protocol.openai.structured_fields import read_schema
from quire.protocol.openai.thinking_fields import EFFORTS

_NULL: Schema = {"type": "null"}
_FORMAT: Schema = either(
    body({"type": {"const": "json_schema"}, "schema": {"type": "object"}}, required=("type", "schema"), closed=True),
    _NULL,
    description="A language that the answer belongs to.",
)
OUTPUT_FIELDS: dict[str, Schema] = {
    "output_config": either(body({"format": _FORMAT, "effort": words(*EFFORTS)}), _NULL),
    "output_format": _FORMAT,
}


def read_effort(given: Fields) -> str | None:
    config = _config(given)
    return config.as_hint("effort", partial(config.one_of, "effort", EFFORTS))


def read_output_format(given: Fields) -> StructuredOutput | None:
    """Of `output_config.format`, or of `output_format`, which was its name before."""
    config = _config(given)
    where = "output_config.format" if "format" in config else "output_format"
    values = config.object("format") if "format" in config else given.object("output_format")
    if values is None:
        return None
    found = Fields(values, known=("type", "schema"), where=f"{where}.")  # it binds the answer: all of it counts
    found.only("type", "json_schema")
    schema = found.object("schema")
    if schema is None:
        raise refuse(f"{where}.schema", None, "a JSON schema")
    return read_schema(schema, f"{where}.schema")


def _config(given: Fields) -> Fields:
    return given.inside("output_config", given.object("output_config") or {}, ("format", "effort"))
