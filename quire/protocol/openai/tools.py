"""The tools of a chat request: what may be called, what must be, and how strictly."""

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from quire.core.errors import InvalidRequest
from quire.protocol.openai.fields import Fields, refuse
from quire.protocol.openai.free_form import check_free_form
from quire.protocol.openai.schema import Schema, body, either, flag, items, text
from quire.protocol.parsers.tools import Choice, Function, Tools

MOST_TOOLS = 1024
LONGEST_DESCRIPTION = 100_000
NAME_PATTERN = r"^[A-Za-z0-9_.\-]{1,64}$"
_CHOICES = ("none", "auto", "required")

NAME: Schema = {"type": "string", "pattern": NAME_PATTERN}
PARAMETERS: Schema = {"type": ["object", "null"], "description": "A JSON schema of the arguments."}
_FUNCTION: Schema = body(
    {"name": NAME, "description": text(LONGEST_DESCRIPTION), "parameters": PARAMETERS, "strict": flag()},
    required=("name",),
)
_TOOL: Schema = body({"type": {"const": "function"}, "function": _FUNCTION}, required=("type", "function"))
_NAMED: Schema = body(
    {"type": {"const": "function"}, "function": body({"name": NAME}, required=("name",))}, required=("type", "function")
)
TOOL_FIELDS: dict[str, Schema] = {
    "tools": items(_TOOL, MOST_TOOLS, description="Functions that the model may call."),
    "tool_choice": either(
        {"enum": [*_CHOICES, None]},
        _NAMED,
        description="Whether tools are called; required, or one by name, binds the answer to calls that fit.",
    ),
    "parallel_tool_calls": flag(description="False: at most one call in an answer."),
}


def read_tools(given: Fields) -> Tools:
    """The tools of a chat body; none where it has none."""
    functions = tuple(
        _tool(each, f"tools[{place}]") for place, each in enumerate(given.list("tools", MOST_TOOLS) or [])
    )
    parallel = given.flag("parallel_tool_calls", True)
    asked = given.get("tool_choice")
    if isinstance(asked, dict):
        choice = Fields(asked, known=("type", "function"), where="tool_choice.")
        choice.only("type", "function")
        named = Fields(choice.object("function") or {}, known=("name",), where="tool_choice.function.").text("name")
        if named is None:
            raise refuse("tool_choice.function.name", None, "the name of a tool")
        return make_tools(functions, "required", named, parallel)
    word = given.one_of("tool_choice", _CHOICES)
    return make_tools(functions, "auto" if word is None else word, None, parallel)  # type: ignore[arg-type]


def make_tools(functions: tuple[Function, ...], choice: Choice, named: str | None, parallel: bool) -> Tools:
    """Tools that make sense together, or an error that says why they do not."""
    names = [function.name for function in functions]
    if not functions and choice == "required":
        raise InvalidRequest("tool_choice asks for a call, and there are no tools; give some", field="tool_choice")
    if named is not None and named not in names:
        raise InvalidRequest(
            f"tool_choice names {named[:64]!r}, and the tools are {', '.join(names)}", field="tool_choice"
        )
    return Tools(functions, choice, named, parallel)


def check_tools(tools: Tools, accepts: Callable[[str], bool]) -> None:
    """Refuses tools that cannot be told apart, or that a chat template would not show; `accepts` says what it reads."""
    if tools.are_offered and not accepts("tools"):
        raise InvalidRequest(
            "tools are given, and the model's chat template has no place for them; leave them out, set tool_choice to "
            "none, or start quire with --chat-template and one that shows them",
            field="tools",
        )
    counts = Counter(function.name for function in tools.functions)
    twice = next((name for name, count in counts.items() if count > 1), None)
    if twice is not None:
        raise InvalidRequest(f"two tools have the name {twice!r}; give each its own", field="tools")


def read_function(given: Fields, where: str, parameters: str = "parameters") -> Function:
    """A function out of the fields that describe it."""
    name = given.text("name")
    if name is None or not re.fullmatch(NAME_PATTERN, name):
        raise refuse(f"{where}.name", name, "a name of 1 to 64 letters, digits and any of _ . -")
    schema: dict[str, Any] | None = given.object(parameters)
    check_free_form(f"{where}.{parameters}", schema)
    described = given.text("description", longest=LONGEST_DESCRIPTION)
    return Function(name, described, schema, given.flag("strict"))


def _tool(given: object, where: str) -> Function:
    if not isinstance(given, dict):
        raise refuse(where, given, '{"type": "function", "function": {...}}')
    if given.get("type") != "function":
        raise refuse(f"{where}.type", given.get("type"), "function, for nothing else is supported")
    tool = Fields(given, known=("type", "function"), where=f"{where}.")
    function = tool.object("function")
    if function is None:
        raise refuse(f"{where}.function", None, "an object with a name")
    known = ("name", "description", "parameters", "strict")
    return read_function(Fields(function, known=known, where=f"{where}.function."), f"{where}.function")
