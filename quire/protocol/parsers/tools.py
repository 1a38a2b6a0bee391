"""Tools: the functions that a request lets the model call, and whether it must."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

Choice = Literal["none", "auto", "required"]
NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
INPUT = "input"
TEXT_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {INPUT: {"type": "string"}},
    "required": [INPUT],
    "additionalProperties": False,
}
"""Of a function that takes free text: models write calls with named arguments, so it has one."""

_MORE_ARGUMENTS = frozenset(
    [
        *("additionalProperties", "unevaluatedProperties", "patternProperties", "dependencies", "dependentSchemas"),
        *("allOf", "anyOf", "oneOf", "if", "$ref", "$dynamicRef"),
    ]
)
"""Where a schema may speak of arguments that its `properties` do not list."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function as the request describes it."""

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] | None = None
    """The JSON schema of its arguments; None where it takes none."""
    strict: bool = False
    """Whether its arguments must be as the schema says."""
    namespace: str | None = None
    """What its client groups it under; its name begins with it."""
    is_text: bool = False
    """Whether its client knows it as a function of free text rather than of named arguments."""
    pattern: str | None = None
    """The regular expression that its free text follows, of which its parameters tell too."""

    @property
    def own_name(self) -> str:
        """Without the namespace."""
        return self.name if self.namespace is None else self.name.removeprefix(f"{self.namespace}.")

    def for_template(self) -> dict[str, Any]:
        """As chat templates read it: in OpenAI's shape."""
        described = {} if self.description is None else {"description": self.description}
        # templates look at `parameters` without asking whether it is there
        parameters = NO_PARAMETERS if self.parameters is None else dict(self.parameters)
        return {"type": "function", "function": {"name": self.name, **described, "parameters": parameters}}

    def schema(self) -> Mapping[str, Any]:
        return NO_PARAMETERS if self.parameters is None else self.parameters

    def property(self, name: str) -> Mapping[str, Any]:
        """What the schema says of one argument; nothing where it does not name it."""
        properties = self.schema().get("properties")
        found = properties.get(name) if isinstance(properties, Mapping) else None
        return found if isinstance(found, Mapping) else {}


@dataclass(frozen=True, slots=True)
class Tools:
    """The functions of a request and how they may be called."""

    functions: tuple[Function, ...] = ()
    choice: Choice = "auto"
    named: str | None = None
    """The one function that must be called."""
    parallel: bool = True
    """What the request says of several calls in one answer."""

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def get(self, name: str) -> Function | None:
        return next((function for function in self.functions if function.name == name), None)

    def is_text(self, name: str) -> bool:
        """Whether it is the name of a function of free text."""
        found = self.get(name)
        return found is not None and found.is_text

    @property
    def are_offered(self) -> bool:
        """Whether the model may call any at all."""
        return bool(self.functions) and self.choice != "none"

    @property
    def must_be_called(self) -> bool:
        return self.choice == "required"

    @property
    def may_be_several(self) -> bool:
        """Whether one answer may have several calls: a function that is asked for by its name is called once."""
        return self.parallel and self.named is None

    @property
    def are_constrained(self) -> bool:
        """Whether a grammar has to see to it that calls are as they should be."""
        return self.are_offered and (self.must_be_called or any(function.strict for function in self.functions))

    def required(self) -> "Tools":
        """The same, called for certain."""
        return replace(self, choice="required")

    def callable(self) -> tuple[Function, ...]:
        """Those that an answer may call."""
        return tuple(function for function in self.functions if self.named in (None, function.name))

    def schema_of(self, function: Function) -> Mapping[str, Any]:
        """What a grammar holds the arguments to: those that are listed, where a schema says nothing of others."""
        if not (function.strict or self.must_be_called):
            return {"type": "object"}
        schema = {"type": "object", **function.schema()}
        listed = schema.get("properties")
        if not isinstance(listed, Mapping) or schema.keys() & _MORE_ARGUMENTS or not listed.keys() >= _required(schema):
            return schema
        return schema | {"additionalProperties": False}

    def for_template(self) -> list[dict[str, Any]] | None:
        return [function.for_template() for function in self.functions] if self.are_offered else None


def _required(schema: Mapping[str, Any]) -> set[str]:
    """The arguments that a call must have, whether or not the schema lists them."""
    names = schema.get("required")
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()
