"""Bodies of vLLM's /v1/load_lora_adapter and /v1/unload_lora_adapter."""

from dataclasses import dataclass

from quire.protocol.ignored import Ignored
from quire.protocol.openai.fields import Fields, object_of, refuse
from quire.protocol.openai.schema import Schema, flag

_NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 200}
_LONGEST_PATH = 4096
_ID: Schema = {"type": "integer", "description": "Of vLLM's; adapters are told apart by their names here."}
LOAD_FIELDS: dict[str, Schema] = {
    "lora_name": _NAME,
    "lora_path": {"type": "string", "minLength": 1, "maxLength": _LONGEST_PATH},
    "load_inplace": flag(description="An adapter of the same name makes way."),
    "base_model_name": {"type": "string"},
}
UNLOAD_FIELDS: dict[str, Schema] = {"lora_name": _NAME, "lora_int_id": _ID}


@dataclass(frozen=True, slots=True)
class LoadBody:
    name: str
    path: str
    in_place: bool


def read_load_body(values: object, ignored: Ignored) -> LoadBody:
    """Raises an InvalidRequest that names the field for anything that cannot be honoured."""
    given = Fields(object_of(values), known=LOAD_FIELDS, ignored=ignored)
    given.hint("base_model_name")
    return LoadBody(
        _text(given, "lora_name", 200), _text(given, "lora_path", _LONGEST_PATH), given.flag("load_inplace")
    )


def read_unload_body(values: object, ignored: Ignored) -> str:
    given = Fields(object_of(values), known=UNLOAD_FIELDS, ignored=ignored)
    given.hint("lora_int_id")
    return _text(given, "lora_name", 200)


def _text(given: Fields, name: str, longest: int) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not 1 <= len(value) <= longest:
        raise refuse(name, value, f"a text of 1 to {longest} characters")
    return value
