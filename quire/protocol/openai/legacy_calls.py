"""OpenAI's first way to call functions: `functions`, `function_call` and the role function, as tools and back."""

from collections.abc import Sequence
from typing import Any

from quire.core.errors import InvalidRequest
from quire.protocol.openai.fields import Fields, refuse
from quire.protocol.openai.functions import FUNCTION, FUNCTION_FIELDS, NAME, read_function
from quire.protocol.openai.schema import Schema, body, either, items
from quire.protocol.openai.tools import MOST_TOOLS, make_tools
from quire.protocol.parsers.tools import Choice, Tools

Message = dict[str, Any]

LEGACY_FIELDS: dict[str, Schema] = {
    "functions": items(FUNCTION, MOST_TOOLS, description="tools' predecessor; an answer has at most one call."),
    "function_call": either(
        {"enum": ["none", "auto", None]}, body({"name": NAME}, required=("name",)), description="Only with functions."
    ),
}
_CHOICES: dict[str, Choice] = {"none": "none", "auto": "auto"}


def read_legacy_tools(given: Fields) -> Tools | None:
    """The functions of a chat body as tools; None where it has none."""
    functions, asked = given.list("functions", MOST_TOOLS), given.get("function_call")
    if functions is None and asked is None:
        return None
    if given.get("tools") or given.get("tool_choice"):
        raise InvalidRequest(
            "functions and tools are both given, and they mean the same; leave functions and function_call out",
            field="functions",
        )
    read = tuple(_function(given, each, f"functions[{place}]") for place, each in enumerate(functions or []))
    if isinstance(asked, dict):
        named = given.inside("function_call", asked, ("name",)).text("name")
        if named is None:
            raise refuse("function_call.name", None, "the name of a function")
        return make_tools(read, "required", named, parallel=False, field="function_call")
    word = given.one_of("function_call", _CHOICES)
    return make_tools(read, "auto" if word is None else _CHOICES[word], None, parallel=False)


def as_tool_turns(messages: Sequence[Message]) -> list[Message]:
    """Messages with `function_call`, and of the role function, as templates read calls and their results."""
    turns: list[Message] = []
    identity = _identity(0)
    for place, message in enumerate(messages):
        called = message.get("function_call")
        if called is not None:
            identity = _identity(place)
            call = {"id": identity, "type": "function", "function": called}
            rest = {name: value for name, value in message.items() if name != "function_call"}
            turns.append({**rest, "tool_calls": [*message.get("tool_calls", ()), call]})
        elif message["role"] == "function":
            turns.append({**message, "role": "tool", "tool_call_id": identity})
        else:
            turns.append(message)
    return turns


def _identity(place: int) -> str:
    """The calls of old had no ids, and templates want one: nine letters and digits, which all of them take."""
    return f"call{place:05d}"


def _function(given: Fields, value: object, where: str) -> Any:
    if not isinstance(value, dict):
        raise refuse(where, value, '{"name": ..., "parameters": {...}}')
    return read_function(given.inside(where, value, FUNCTION_FIELDS), where)
