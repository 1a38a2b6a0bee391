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
NAME_PATTERN = r"^[A-Za-z0-9_.\-]{1,128}$"
FUNCTION_FIELDS = ("name", "description", "parameters", "strict", "cache_control")
CHOICES: dict[str, Choice] = {"none": "none", "auto": "auto", "required": "required", "any": "required"}
"""The last is Mistral's and Anthropic's word."""
_SERVER_TOOLS = (
    *("web_search", "web_fetch", "file_search", "code_interpreter", "code_execution", "image_generation", "mcp"),
    *("tool_search", "openrouter:"),
)
"""What the types of tools begin with that a server carries out itself."""

NAME: Schema = {"type": "string", "pattern": NAME_PATTERN}
PARAMETERS: Schema = {"type": ["object", "null"], "description": "A JSON schema of the arguments."}
FUNCTION: Schema = body(
    {"name": NAME, "description": text(LONGEST_DESCRIPTION), "parameters": PARAMETERS, "strict": flag()},
    required=("name",),
)
SERVER_TOOL: Schema = body(
    {"type": {"enum": [name for name in _SERVER_TOOLS if name.isidentifier()]}},
    required=("type",),
    description="Left out of what the model is shown, as are types that begin like it: quire carries out no tools.",
)
_TOOL: Schema = either(
    body({"type": {"const": "function"}, "function": FUNCTION}, required=("type", "function")), SERVER_TOOL
)
_NAMED: Schema = body(
    {"type": {"const": "function"}, "function": body({"name": NAME}, required=("name",))}, required=("type", "function")
)
MODES = ("auto", "required")
_ALLOWED: Schema = body(
    {
        "type": {"const": "allowed_tools"},
        "allowed_tools": body(
            {"mode": {"enum": list(MODES)}, "tools": {**items(_NAMED, MOST_TOOLS, least=1), "type": "array"}},
            required=("mode", "tools"),
        ),
    },
    required=("type", "allowed_tools"),
)
TOOL_FIELDS: dict[str, Schema] = {
    "tools": items(_TOOL, MOST_TOOLS, description="Functions that the model may call."),
    "tool_choice": either(
        {"enum": [*CHOICES, None]},
        _NAMED,
        _ALLOWED,
        description="Whether tools are called; required, or one by name, binds the answer to calls that fit.",
    ),
    "parallel_tool_calls": flag(description="False: at most one call in an answer."),
}


def read_tools(given: Fields) -> Tools:
    """The tools of a chat body; none where it has none."""
    read = [_tool(given, each, f"tools[{place}]") for place, each in enumerate(given.list("tools", MOST_TOOLS) or [])]
    functions = tuple(function for function in read if function is not None)
    parallel = given.flag("parallel_tool_calls", True)
    asked = given.get("tool_choice")
    if not isinstance(asked, dict):
        word = given.one_of("tool_choice", CHOICES)
        return make_tools(functions, "auto" if word is None else CHOICES[word], None, parallel)
    choice = given.inside("tool_choice", asked, ("type", "function", "name", "allowed_tools"))
    kind = choice.text("type")
    if kind == "allowed_tools":
        allowed = choice.inside(
            "tool_choice.allowed_tools", choice.object("allowed_tools") or {}, ("mode", "tools", "cache_control")
        )
        return allowed_tools(functions, allowed, parallel, _allowed_name)
    if kind in CHOICES:
        return make_tools(functions, CHOICES[kind], None, parallel)
    choice.only("type", "function")
    function = choice.object("function") or {"name": choice.get("name")}
    named = choice.inside("tool_choice.function", function, ("name",)).text("name")
    if named is None:
        raise refuse("tool_choice.function.name", None, "the name of a tool")
    return make_tools(functions, "required", named, parallel)


def allowed_tools(
    functions: tuple[Function, ...], given: Fields, parallel: bool, name_of: Callable[[Any], str | None]
) -> Tools:
    """Those of the functions that `given` lets the model call: it is shown no others."""
    mode = given.one_of("mode", MODES)
    names = [name_of(each) for each in given.list("tools", MOST_TOOLS) or []]
    known = {function.name for function in functions}
    strange = next((name for name in names if name not in known), None)
    if mode is None or not names or strange is not None or None in names:
        raise refuse(
            "tool_choice", f"allowed_tools of {strange}" if strange else "allowed_tools",
            "allowed_tools with a mode of auto or required, and names of tools that are given",
        )  # fmt: skip
    chosen = tuple(function for function in functions if function.name in names)
    return make_tools(chosen, CHOICES[mode], None, parallel)


def make_tools(
    functions: tuple[Function, ...], choice: Choice, named: str | None, parallel: bool, field: str = "tool_choice"
) -> Tools:
    """Tools that make sense together, or an error that says why they do not."""
    names = [function.name for function in functions]
    if not functions and choice == "required":
        raise InvalidRequest(f"{field} asks for a call, and there are no tools; give some", field=field)
    if named is not None and named not in names:
        raise InvalidRequest(f"{field} names {named[:64]!r}, and the tools are {', '.join(names)[:400]}", field=field)
    return Tools(functions, choice, named, parallel)


def leaves_out(given: Fields, kind: object, where: str) -> bool:
    """Whether a tool is one that servers carry out themselves: quire has none, so it is noted and not shown."""
    if not isinstance(kind, str) or not kind.startswith(_SERVER_TOOLS):
        return False
    allowed = "function, for quire carries out no tools itself"
    given.ignored.note(f"{where}.{kind}", lambda: refuse(f"{where}.type", kind, allowed))
    return True


def check_tools(tools: Tools, accepts: Callable[[str], bool]) -> None:
    """Refuses tools that cannot be told apart, or that a chat template would not show; `accepts` says what it reads."""
    if tools.are_offered and not accepts("tools"):
        raise InvalidRequest(
            "tools are given, and the model's chat template has no place for them; leave them out, set tool_choice to "
            "none, or start quire with --tool-template auto, or with --chat-template and one that shows them",
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
        raise refuse(f"{where}.name", name, "a name of 1 to 128 letters, digits and any of _ . -")
    schema: dict[str, Any] | None = given.object(parameters)
    check_free_form(f"{where}.{parameters}", schema)
    described = given.text("description", longest=LONGEST_DESCRIPTION)
    return Function(name, described, schema, given.flag("strict"))


def _tool(request: Fields, given: object, where: str) -> Function | None:
    if not isinstance(given, dict):
        raise refuse(where, given, '{"type": "function", "function": {...}}')
    kind = given.get("type")
    if leaves_out(request, kind, where):
        return None
    if kind not in ("function", None):
        raise refuse(f"{where}.type", kind, "function, for nothing else is supported")
    if "function" not in given and "name" in given:  # as the Responses API has it; some clients mix them
        return read_function(request.inside(where, given, ("type", *FUNCTION_FIELDS)), where)
    tool = request.inside(where, given, ("type", "function", "cache_control"))
    function = tool.object("function")
    if function is None:
        raise refuse(f"{where}.function", None, "an object with a name")
    return read_function(tool.inside(f"{where}.function", function, FUNCTION_FIELDS), f"{where}.function")


def _allowed_name(given: Any) -> str | None:
    function = given.get("function") if isinstance(given, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else None
