"""Tools and thinking as OpenAI's Responses API asks for them."""

from typing import Any

from quire.protocol.openai.fields import Fields, refuse
from quire.protocol.openai.schema import Schema, body, either, flag, items, only, text, words
from quire.protocol.openai.thinking_fields import EFFORTS
from quire.protocol.openai.tools import LONGEST_DESCRIPTION, MOST_TOOLS, NAME, PARAMETERS, make_tools, read_function
from quire.protocol.parsers.reasoning_options import ReasoningOptions
from quire.protocol.parsers.tools import Choice, Function, Tools

_CHOICES: dict[str, Choice] = {"none": "none", "auto": "auto", "required": "required"}
_NULL: Schema = {"type": "null"}
_TOOL: Schema = body(
    {
        "type": {"const": "function"},
        "name": NAME,
        "description": text(LONGEST_DESCRIPTION),
        "parameters": PARAMETERS,
        "strict": flag(),
    },
    required=("type", "name"),
)
TOOL_FIELDS: dict[str, Schema] = {
    "tools": items(_TOOL, MOST_TOOLS, description="Functions that the model may call."),
    "tool_choice": either(
        {"enum": [*_CHOICES, None]}, body({"type": {"const": "function"}, "name": NAME}, required=("type", "name"))
    ),
    "parallel_tool_calls": flag(description="False: at most one call in an answer."),
    "reasoning": either(
        body({"effort": words(*EFFORTS), "summary": only("auto"), "generate_summary": only("auto")}),
        _NULL,
        description="Thinking is given as it was thought: no summary is made of it.",
    ),
}


def read_tools(given: Fields) -> Tools:
    functions = tuple(
        _tool(each, f"tools[{place}]") for place, each in enumerate(given.list("tools", MOST_TOOLS) or [])
    )
    parallel, asked = given.flag("parallel_tool_calls", True), given.get("tool_choice")
    if not isinstance(asked, dict):
        word = given.one_of("tool_choice", _CHOICES)
        return make_tools(functions, "auto" if word is None else _CHOICES[word], None, parallel)
    choice = Fields(asked, known=("type", "name"), where="tool_choice.")
    name = choice.text("name")
    if choice.get("type") != "function" or name is None:
        raise refuse("tool_choice", asked, '{"type": "function", "name": ...}, or none, auto or required')
    return make_tools(functions, "required", name, parallel)


def read_reasoning_options(given: Fields) -> ReasoningOptions:
    reasoning = Fields(
        given.object("reasoning") or {}, known=("effort", "summary", "generate_summary"), where="reasoning."
    )
    for name in ("summary", "generate_summary"):
        reasoning.only(name, "auto")
    return ReasoningOptions(effort=reasoning.one_of("effort", EFFORTS))


def echoed(given: Fields, tools: Tools) -> dict[str, Any]:
    """What a response repeats of these fields, which have been read."""
    reasoning = given.object("reasoning") or {}
    return {
        "tools": [_shown(function) for function in tools.functions],
        "tool_choice": given.get("tool_choice") or "auto",
        "parallel_tool_calls": tools.parallel,
        "reasoning": {"effort": reasoning.get("effort"), "summary": None},
    }


def _shown(function: Function) -> dict[str, Any]:
    return {
        "type": "function",
        "name": function.name,
        "description": function.description,
        "parameters": None if function.parameters is None else dict(function.parameters),
        "strict": function.strict,
    }


def _tool(given: object, where: str) -> Function:
    if not isinstance(given, dict) or given.get("type") != "function":
        raise refuse(where, given, '{"type": "function", "name": ...}, for nothing else is supported')
    known = ("type", "name", "description", "parameters", "strict")
    return read_function(Fields(given, known=known, where=f"{where}."), where)
