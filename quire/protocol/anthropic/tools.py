"""Tools and thinking as Anthropic's Messages API asks for them."""

from quire.core.checks import MAX_TOKENS
from quire.protocol.anthropic.output_config import read_effort
from quire.protocol.anthropic.turns import check_cache_control
from quire.protocol.openai.fields import Fields, refuse
from quire.protocol.openai.functions import LONGEST_DESCRIPTION, NAME, read_function
from quire.protocol.openai.schema import Schema, body, either, flag, items, only, text
from quire.protocol.openai.thinking_fields import VARIABLES, read_variables
from quire.protocol.openai.tools import BUILT_IN_TOOL, MOST_TOOLS, leaves_out, make_tools
from quire.protocol.parsers.reasoning_options import ReasoningOptions
from quire.protocol.parsers.tools import Choice, Function, Tools

_CHOICES: dict[str, Choice] = {"auto": "auto", "any": "required", "tool": "required", "none": "none"}
_TOOL_FIELDS = ("type", "name", "description", "input_schema", "strict", "cache_control")
_PARALLEL = {"disable_parallel_tool_use": flag()}
_INPUT: Schema = {"type": "object", "description": "A JSON schema of the input."}


def tool_fields(cache_control: Schema) -> dict[str, Schema]:
    tool = body(
        {
            "type": only("custom"),
            "name": NAME,
            "description": text(LONGEST_DESCRIPTION),
            "input_schema": _INPUT,
            "strict": flag(),
            "cache_control": cache_control,
        },
        required=("name", "input_schema"),
    )
    open_choice = body({"type": {"enum": ["auto", "any"]}, **_PARALLEL}, required=("type",))
    named = body({"type": {"const": "tool"}, "name": NAME, **_PARALLEL}, required=("type", "name"))
    no_choice = body({"type": {"const": "none"}}, required=("type",))
    budget = {"type": "integer", "minimum": 1, "maximum": MAX_TOKENS}
    return {
        **VARIABLES,
        "tools": items(either(tool, BUILT_IN_TOOL), MOST_TOOLS, description="Functions that the model may call."),
        "tool_choice": either(open_choice, named, no_choice, {"type": "null"}),
        "thinking": either(
            body({"type": {"enum": ["disabled", "adaptive"]}}, required=("type",)),
            body({"type": {"const": "enabled"}, "budget_tokens": budget}, required=("type",)),
            {"type": "null"},
        ),
    }


def read_tools(given: Fields) -> Tools:
    read = [_tool(given, each, f"tools[{place}]") for place, each in enumerate(given.list("tools", MOST_TOOLS) or [])]
    functions = tuple(function for function in read if function is not None)
    asked = given.object("tool_choice")
    if asked is None:
        return make_tools(functions, "auto", None, parallel=True)
    choice = given.inside("tool_choice", asked, ("type", "name", "disable_parallel_tool_use"))
    kind, name = choice.one_of("type", _CHOICES), choice.text("name")
    if kind is None:
        raise refuse("tool_choice.type", None, f"one of {', '.join(_CHOICES)}")
    if (name is None) == (kind == "tool"):
        raise refuse("tool_choice.name", name, "given with type tool, and with no other")
    return make_tools(functions, _CHOICES[kind], name, not choice.flag("disable_parallel_tool_use"))


def read_reasoning_options(given: Fields) -> ReasoningOptions:
    """Thinking that is disabled is turned off where the model can do without, and left out of the answer where not."""
    thinking = given.inside("thinking", given.object("thinking") or {}, ("type", "budget_tokens"))
    kind = thinking.one_of("type", ("enabled", "disabled", "adaptive"))
    budget = thinking.whole("budget_tokens", 1, MAX_TOKENS)
    if kind is None and "thinking" in given:
        raise refuse("thinking.type", None, "enabled, disabled or adaptive")
    if budget is not None and kind != "enabled":
        given.ignored.note(
            "thinking.budget_tokens", lambda: refuse("thinking.budget_tokens", budget, "left out unless enabled")
        )
    switch = given.flag("enable_thinking") if "enable_thinking" in given else None
    return ReasoningOptions(
        effort=read_effort(given),
        enabled=kind == "enabled" if kind in ("enabled", "disabled") else switch,
        budget=budget if kind == "enabled" else None,
        is_shown=kind != "disabled",
        given=read_variables(given),
        names={"effort": "output_config.effort", "budget": "thinking.budget_tokens"}
        | ({} if switch is None else {"enabled": "enable_thinking"}),
        ignored=given.ignored,
    )


def _tool(request: Fields, given: object, where: str) -> Function | None:
    if not isinstance(given, dict):
        raise refuse(where, given, '{"name": ..., "input_schema": {...}}')
    kind = given.get("type")
    if leaves_out(request, kind, where):
        return None
    if kind not in (None, "custom"):
        raise refuse(f"{where}.type", kind, "custom or left out: give such a tool's input_schema yourself")
    tool = request.inside(where, given, _TOOL_FIELDS)
    check_cache_control(tool, f"{where}.cache_control")
    if "input_schema" not in tool:
        raise refuse(f"{where}.input_schema", None, "a JSON schema of the input")
    return read_function(tool, where, "input_schema")
