"""A function as tools of every API describe it: its name, what it is for, and the schema of its arguments."""

import re
from typing import Any

from quire.protocol.openai.fields import Fields, refuse
from quire.protocol.openai.free_form import check_free_form
from quire.protocol.openai.schema import Schema, body, flag, text
from quire.protocol.parsers.tools import Function

LONGEST_DESCRIPTION = 100_000
NAME_PATTERN = r"^[A-Za-z0-9_.\-]{1,128}$"
FUNCTION_FIELDS = ("name", "description", "parameters", "strict", "cache_control")

NAME: Schema = {"type": "string", "pattern": NAME_PATTERN}
PARAMETERS: Schema = {"type": ["object", "null"], "description": "A JSON schema of the arguments."}
FUNCTION: Schema = body(
    {"name": NAME, "description": text(LONGEST_DESCRIPTION), "parameters": PARAMETERS, "strict": flag()},
    required=("name",),
)


def read_function(given: Fields, where: str, parameters: str = "parameters") -> Function:
    """A function out of the fields that describe it."""
    name = given.text("name")
    if name is None or not re.fullmatch(NAME_PATTERN, name):
        raise refuse(f"{where}.name", name, "a name of 1 to 128 letters, digits and any of _ . -")
    schema: dict[str, Any] | None = given.object(parameters)
    check_free_form(f"{where}.{parameters}", schema)
    described = given.text("description", longest=LONGEST_DESCRIPTION)
    return Function(name, described, schema, given.flag("strict"))
