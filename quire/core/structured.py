"""StructuredOutput: a language the output of a request must belong to. Text only: what it means is sampling's part."""

import json
from typing import Any, Self

import msgspec

from quire.core.checks import check_strings, invalid

MAX_GRAMMAR_LENGTH = 1 << 20
MAX_CHOICES = 4096


class StructuredOutput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A language the output must belong to; exactly one is set."""

    json: str | None = None
    """A JSON schema, as JSON text; in Python it may be given as a dict or a pydantic model."""
    json_object: bool | None = None
    """Any JSON object."""
    regex: str | None = None
    """A regular expression that the whole output matches."""
    choice: tuple[str, ...] | None = None
    """One of these strings."""
    grammar: str | None = None
    """A context-free grammar (Lark or EBNF)."""
    structural_tag: str | None = None
    """Free text with constrained regions, as JSON text."""
    strict: bool = True
    """False: what no grammar can say of a JSON schema is left out, instead of being refused."""

    @classmethod
    def of(cls, given: Any) -> Self:
        """From a pydantic model, a JSON schema as a dict, or a dict of this type's own fields."""
        if isinstance(given, cls):
            return given
        if isinstance(given, dict) and given and set(given) <= set(cls.__struct_fields__):
            return cls(**given)
        return cls(json=given)

    def __post_init__(self) -> None:
        schema: Any = self.json
        choice: Any = self.choice
        if schema is not None and not isinstance(schema, str):
            msgspec.structs.force_setattr(self, "json", _schema_text(schema))
        if isinstance(choice, list):
            msgspec.structs.force_setattr(self, "choice", tuple(choice))
        languages = [name for name in self.__struct_fields__ if name != "strict"]
        given = [name for name in languages if getattr(self, name) is not None]
        if len(given) != 1:
            raise invalid("structured", given or "nothing", f"exactly one of {', '.join(languages)}")
        if self.json is None and not self.strict:
            raise invalid("structured.strict", False, "true, or left out, unless json is given")
        if self.json_object is False:
            raise invalid("structured.json_object", False, "true, or leave it out")
        if self.choice is not None:
            check_strings("structured.choice", self.choice, MAX_CHOICES, MAX_GRAMMAR_LENGTH, at_least=1)
        for name in ("json", "regex", "grammar", "structural_tag"):
            text = getattr(self, name)
            if text is not None and not isinstance(text, str):
                raise invalid(f"structured.{name}", text, "text")
            if text is not None and not 0 < len(text) <= MAX_GRAMMAR_LENGTH:
                raise invalid(f"structured.{name}", f"{len(text)} characters", f"1 to {MAX_GRAMMAR_LENGTH} characters")

    @property
    def num_characters(self) -> int:
        """Its size as text."""
        texts = (self.json, self.regex, self.grammar, self.structural_tag, *(self.choice or ()))
        return sum(len(text) for text in texts if text is not None)


class Loosened(msgspec.Struct, frozen=True):
    """A JSON schema as far as a grammar can hold it."""

    structured: StructuredOutput
    """What engines are given."""
    left_out: tuple[str, ...] = ()
    """JSON pointers to the keywords that are missing from it."""


def _schema_text(given: Any) -> str:
    # pydantic is no dependency: whatever knows its own schema will do
    schema = given.model_json_schema() if hasattr(given, "model_json_schema") else given
    if not isinstance(schema, dict | bool):
        raise invalid("structured.json", given, "a JSON schema: a dict, a pydantic model, or JSON text")
    try:
        return json.dumps(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise invalid("structured.json", f"a schema that is no JSON ({error})", "made of plain JSON values") from None
