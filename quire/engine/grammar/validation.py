"""Whether a text satisfies a JSON schema, all of its keywords included. Runs where it can be killed: patterns are
strangers', and Python's regular expressions can take for ever.
"""

import json

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import validator_for
from referencing import Registry

_LONGEST = 500


def problem_of(schema: str, text: str) -> str | None:
    """What is wrong with a text, if anything."""
    try:
        value = json.loads(text)
    except ValueError as broken:
        return f"the text is no JSON: {broken}"
    described = json.loads(schema)
    kind = validator_for(described, default=Draft202012Validator)
    # with a registry of its own it opens no address that a schema names
    error: ValidationError | None = best_match(kind(described, registry=Registry()).iter_errors(value))
    return None if error is None else f"{error.json_path}: {error.message}"[:_LONGEST]
