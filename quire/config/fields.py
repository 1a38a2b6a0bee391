"""The settings as data: which section holds which field, and whether a value has a field's type.

The sections stay the only place where a setting is written down; flags, keys and keyword arguments come from here.
"""

import json
import types
from dataclasses import fields
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from quire.core.errors import ConfigError

_TYPE_WORDS: dict[object, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def section_types(config: type) -> dict[str, type]:
    """Section name → section class of a config made of sections, in order."""
    hints = get_type_hints(config)
    return {field.name: hints[field.name] for field in fields(config)}


def field_sections(config: type) -> dict[str, str]:
    """Field name → name of the section that holds it."""
    return {field.name: name for name, section in section_types(config).items() for field in fields(section)}


def check_value(section: type, name: str, value: object) -> None:
    """Raise a ConfigError unless `value` has the type that field `name` of `section` declares."""
    hint = get_type_hints(section)[name]
    if not _matches(hint, value):
        secret = any(field.name == name and field.metadata.get("secret") for field in fields(section))
        given = f"a {type(value).__name__}" if secret else f"{value!r} ({type(value).__name__})"
        raise ConfigError(f"{name} is {given}, but it must be {describe(hint)}.")


def as_text(section: type, name: str, value: object) -> object:
    """`value`, or its JSON where field `name` of `section` takes JSON as text and is given what that stands for."""
    is_json = any(field.name == name and field.metadata.get("json") for field in fields(section))
    return json.dumps(value) if is_json and isinstance(value, dict) else value


def describe(hint: Any) -> str:
    """A type in words: `a whole number`, `one of auto, swap`."""
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, get_args(hint)))
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(describe(member) for member in get_args(hint) if member is not type(None))
    return _TYPE_WORDS[hint]


def _matches(hint: Any, value: object) -> bool:
    if get_origin(hint) is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        return any(_matches(member, value) for member in get_args(hint))
    if isinstance(value, bool):
        return hint is bool
    if hint is float:
        return isinstance(value, int | float)
    return isinstance(value, hint)
