"""Tools and thinking as Anthropic's Messages API asks for them."""

from quire.core.checks import MAX_TOKENS
from quire.protocol.anthropic.turns import check_cache_control
from quire.protocol.openai.fields import Fields, refuse
from quire.protocol.openai.schema import Schema, body, either, flag, items, only, text
from quire.protocol.openai.tools import LONGEST_DESCRIPTION, MOST_TOOLS, NAME, make_tools, read_function
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
        "tools": items(tool, MOST_TOOLS, description="Functions that the model may call."),
        "tool_choice": either(open_choice, named, no_choice, {"type": "null"}),
        "thinking": either(
            body({"type": {"enum": ["disabled", "adaptive"]}}, required=("type",)),
            body({"type": {"const": "enabled"}, "budget_tokens": budget}, required=("type", "budget_tokens")),
            {"type": "null"},
        ),
    }


def read_tools(given: Fields) -> Tools:
    functions = tuple(
        _tool(each, f"tools[{place}]") for place, each in enumerate(given.list("tools", MOST_TOOLS) or [])
    )
    asked = given.object("tool_choice")
    if asked is None:
        return make_tools(functions, "auto", None, parallel=True)
    choice = Fields(asked, known=("type", "name", "disable_parallel_tool_use"), where="tool_choice.")
    kind, name = choice.one_of("type", _CHOICES), choice.text("name")
    if kind is None:
        raise refuse("tool_choice.type", None, f"one of {', '.join(_CHOICES)}")
    if (name is None) == (kind == "tool"):
        raise refuse("tool_choice.name", name, "given with type tool, and with no other")
    if kind == "none" and "disable_parallel_tool_use" in choice:
        raise refuse("tool_choice.disable_parallel_tool_use", True, "left out with type none")
    return make_tools(functions, _CHOICES[kind], name, not choice.flag("disable_parallel_tool_use"))


def read_reasoning_options(given: Fields) -> ReasoningOptions:
    """Thinking that is disabled is turned off where the model can do without, and left out of the answer where not."""
    asked = given.object("thinking")
    if asked is None:
        return ReasoningOptions()
    thinking = Fields(asked, known=("type", "budget_tokens"), where="thinking.")
    kind = thinking.one_of("type", ("enabled", "disabled", "adaptive"))
    budget = thinking.whole("budget_tokens", 1, MAX_TOKENS)
    if kind is None:
        raise refuse("thinking.type", None, "enabled, disabled or adaptive")
    if (budget is None) == (kind == "enabled"):
        raise refuse("thinking.budget_tokens", budget, "given with type enabled, and with no other")
    if kind == "adaptive":
        return ReasoningOptions()
    return ReasoningOptions(enabled=kind == "enabled", budget=budget, is_shown=kind == "enabled")


def _tool(given: object, where: str) -> Function:
    if not isinstance(given, dict):
        raise refuse(where, given, '{"name": ..., "input_schema": {...}}')
    if given.get("type") not in (None, "custom"):
        raise refuse(f"{where}.type", given["type"], "custom or left out, for there are no tools of the server's own")
    tool = Fields(given, known=_TOOL_FIELDS, where=f"{where}.")
    check_cache_control(tool.get("cache_control"), f"{where}.cache_control")
    if "input_schema" not in tool:
        raise refuse(f"{where}.input_schema", None, "a JSON schema of the input")
    return read_function(tool, where, "input_schema")
