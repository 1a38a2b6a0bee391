"""The tools of a chat request: what may be called, what must be, and how strictly."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from quire.core.errors import InvalidRequest
from quire.protocol.openai.custom_tools import CUSTOM, CUSTOM_FIELDS, read_custom
from quire.protocol.openai.fields import Fields, refuse
from quire.protocol.openai.functions import FUNCTION, FUNCTION_FIELDS, NAME, read_function
from quire.protocol.openai.schema import Schema, body, either, flag, items
from quire.protocol.parsers.tools import Choice, Function, Tools

MOST_TOOLS = 1024
CHOICES: dict[str, Choice] = {"none": "none", "auto": "auto", "required": "required", "any": "required"}
"""The last is Mistral's and Anthropic's word."""
_BUILT_IN_TOOLS = (
    *("web_search", "web_fetch", "file_search", "code_interpreter", "code_execution", "image_generation", "mcp"),
    *("tool_search", "openrouter:", "local_shell", "shell", "apply_patch", "computer_use"),
)
"""What the types of tools begin with that a server carries out itself, or that only its own models were taught."""

BUILT_IN_TOOL: Schema = body(
    {"type": {"enum": [name for name in _BUILT_IN_TOOLS if name.isidentifier()]}},
    required=("type",),
    description="Left out of what the model is shown, as are types that begin like it: quire carries out no tools, and "
    "models know those that a request describes.",
)
_KINDS = ("function", "custom")
_FUNCTION = ("function", FUNCTION_FIELDS, read_function)
_TOOL: Schema = either(
    body({"type": {"const": "function"}, "function": FUNCTION}, required=("type", "function")),
    body(
        {"type": {"const": "custom"}, "custom": body(CUSTOM, required=("name",))},
        required=("type", "custom"),
        description="A function of free text.",
    ),
    BUILT_IN_TOOL,
)
_NAMED: Schema = either(
    *(
        body({"type": {"const": kind}, kind: body({"name": NAME}, required=("name",))}, required=("type", kind))
        for kind in _KINDS
    )
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
    choice = given.inside("tool_choice", asked, ("type", *_KINDS, "name", "allowed_tools"))
    kind = choice.text("type")
    if kind == "allowed_tools":
        allowed = choice.inside(
            "tool_choice.allowed_tools", choice.object("allowed_tools") or {}, ("mode", "tools", "cache_control")
        )
        return allowed_tools(functions, allowed, parallel, _allowed_name)
    if kind in CHOICES:
        return make_tools(functions, CHOICES[kind], None, parallel)
    kind = choice.one_of("type", _KINDS) or "function"
    described = choice.object(kind) or {"name": choice.get("name")}
    named = choice.inside(f"tool_choice.{kind}", described, ("name",)).text("name")
    if named is None:
        raise refuse(f"tool_choice.{kind}.name", None, "the name of a tool")
    return make_tools(functions, "required", named, parallel)


def allowed_tools(
    functions: tuple[Function, ...], given: Fields, parallel: bool, name_of: Callable[[Any], str | None]
) -> Tools:
    """Those of the functions that `given` lets the model call: it is shown no others."""
    mode = given.one_of("mode", MODES)
    names = [name_of(each) for each in given.list("tools", MOST_TOOLS) or [] if not _is_built_in(each)]
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
    """Whether a tool is one that servers carry out or describe themselves: quire has none, so it is noted and not
    shown."""
    if not _is_built_in({"type": kind}):
        return False
    allowed = "function, for quire carries out no tools itself, and the model knows those that are described"
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


def _tool(request: Fields, given: object, where: str) -> Function | None:
    if not isinstance(given, dict):
        raise refuse(where, given, '{"type": "function", "function": {...}}, or of type custom')
    kind = given.get("type")
    if leaves_out(request, kind, where):
        return None
    if kind not in (*_KINDS, None):
        raise refuse(f"{where}.type", kind, "function or custom, for nothing else is supported")
    name, known, read = ("custom", CUSTOM_FIELDS, read_custom) if kind == "custom" else _FUNCTION
    if name not in given and "name" in given:  # as the Responses API has it; some clients mix them
        return read(request.inside(where, given, ("type", *known)), where)
    tool = request.inside(where, given, ("type", name, "cache_control"))
    described = tool.object(name)
    if described is None:
        raise refuse(f"{where}.{name}", None, "an object with a name")
    return read(tool.inside(f"{where}.{name}", described, known), f"{where}.{name}")


def _is_built_in(given: Any) -> bool:
    kind = given.get("type") if isinstance(given, dict) else None
    return isinstance(kind, str) and kind.startswith(_BUILT_IN_TOOLS)


def _allowed_name(given: Any) -> str | None:
    kind = given.get("type") if isinstance(given, dict) else None
    described = given.get("custom" if kind == "custom" else "function") if isinstance(given, dict) else None
    name = described.get("name") if isinstance(described, dict) else None
    return name if isinstance(name, str) else None
