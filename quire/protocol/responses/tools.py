"""Tools and thinking as OpenAI's Responses API asks for them.

A namespace groups functions, and a custom tool takes free text. Models know neither, so they see functions: those of
a namespace as `namespace.name`, a custom tool with one argument. Answers are told in the client's words again.
"""

from dataclasses import replace
from typing import Any

from quire.protocol.openai.custom_tools import CUSTOM, CUSTOM_FIELDS, read_custom
from quire.protocol.openai.fields import Fields, refuse
from quire.protocol.openai.functions import FUNCTION_FIELDS, LONGEST_DESCRIPTION, NAME, PARAMETERS, read_function
from quire.protocol.openai.schema import Schema, body, either, flag, items, text, words
from quire.protocol.openai.thinking_fields import EFFORTS, VARIABLES, read_effort, read_variables
from quire.protocol.openai.tools import (
    BUILT_IN_TOOL,
    CHOICES,
    MODES,
    MOST_TOOLS,
    allowed_tools,
    leaves_out,
    make_tools,
)
from quire.protocol.parsers.reasoning_options import ReasoningOptions
from quire.protocol.parsers.tools import Function, Tools

_NULL: Schema = {"type": "null"}
_DESCRIBED: dict[str, Schema] = {"name": NAME, "description": text(LONGEST_DESCRIPTION)}
_FUNCTION: Schema = body(
    {"type": {"const": "function"}, **_DESCRIBED, "parameters": PARAMETERS, "strict": flag()}, required=("type", "name")
)
_CUSTOM: Schema = body(
    {"type": {"const": "custom"}, **CUSTOM}, required=("type", "name"), description="A function of free text."
)
_NAMESPACE: Schema = body(
    {
        "type": {"const": "namespace"},
        **_DESCRIBED,
        "tools": {"type": "array", "items": either(_FUNCTION, _CUSTOM), "maxItems": MOST_TOOLS},
    },
    required=("type", "name", "tools"),
)
_NAMED: Schema = body({"type": {"enum": ["function", "custom"]}, "name": NAME}, required=("type", "name"))
_ALLOWED: Schema = body(
    {
        "type": {"const": "allowed_tools"},
        "mode": {"enum": list(MODES)},
        "tools": {**items(_NAMED, MOST_TOOLS, least=1), "type": "array"},
    },
    required=("type", "mode", "tools"),
)
_REASONING: dict[str, Schema] = {
    "effort": words(*EFFORTS),
    "summary": {"type": ["string", "null"]},
    "generate_summary": {"type": ["string", "null"]},
}
TOOL_FIELDS: dict[str, Schema] = {
    "tools": items(
        either(_FUNCTION, _CUSTOM, _NAMESPACE, BUILT_IN_TOOL), MOST_TOOLS, description="What the model may call."
    ),
    "tool_choice": either({"enum": [*CHOICES, None]}, _NAMED, _ALLOWED),
    "parallel_tool_calls": flag(description="False: at most one call in an answer."),
    "reasoning": either(
        body(_REASONING), _NULL, description="Thinking is given as it was thought: no summary is made of it."
    ),
    **VARIABLES,
}


def read_tools(given: Fields) -> Tools:
    functions = tuple(
        function
        for place, each in enumerate(given.list("tools", MOST_TOOLS) or [])
        for function in _tool(given, each, f"tools[{place}]")
    )
    parallel, asked = given.flag("parallel_tool_calls", True), given.get("tool_choice")
    if not isinstance(asked, dict):
        word = given.one_of("tool_choice", CHOICES)
        return make_tools(functions, "auto" if word is None else CHOICES[word], None, parallel)
    choice = given.inside("tool_choice", asked, ("type", "name", "namespace", "mode", "tools"))
    if choice.get("type") == "allowed_tools":
        return allowed_tools(functions, choice, parallel, _full_name)
    name = _full_name(asked)
    if choice.get("type") not in ("function", "custom") or name is None:
        raise refuse("tool_choice", asked, '{"type": "function", "name": ...}, or none, auto or required')
    return make_tools(functions, "required", name, parallel)


def read_reasoning_options(given: Fields) -> ReasoningOptions:
    reasoning = given.inside("reasoning", given.object("reasoning") or {}, _REASONING)
    for name in ("summary", "generate_summary"):
        reasoning.hint(name, "auto")
    return ReasoningOptions(
        effort=read_effort(reasoning, "effort"),
        enabled=given.flag("enable_thinking") if "enable_thinking" in given else None,
        given=read_variables(given),
        names={"effort": "reasoning.effort", "enabled": "enable_thinking"},
        ignored=given.ignored,
    )


def echoed(given: Fields, tools: Tools) -> dict[str, Any]:
    """What a response repeats of these fields, which have been read."""
    effort = (given.object("reasoning") or {}).get("effort")
    return {
        "tools": given.get("tools") or [],
        "tool_choice": given.get("tool_choice") or "auto",
        "parallel_tool_calls": tools.parallel,
        "reasoning": {"effort": effort if effort in EFFORTS else None, "summary": None},
    }


def full_name(name: str, namespace: str | None) -> str:
    """What the model knows a function by."""
    return name if namespace is None else f"{namespace}.{name}"


def _full_name(given: Any) -> str | None:
    name = given.get("name") if isinstance(given, dict) else None
    namespace = given.get("namespace") if isinstance(given, dict) else None
    return full_name(name, namespace if isinstance(namespace, str) else None) if isinstance(name, str) else None


def _tool(request: Fields, given: object, where: str, namespace: str | None = None) -> list[Function]:
    kind = given.get("type") if isinstance(given, dict) else None
    if leaves_out(request, kind, where):
        return []
    if not isinstance(given, dict) or kind not in ("function", "custom", "namespace"):
        raise refuse(where, given, '{"type": "function", "name": ...}, or of type custom or namespace')
    if kind == "namespace" and namespace is None:
        return _namespace(request, given, where)
    known, read = (CUSTOM_FIELDS, read_custom) if kind == "custom" else (FUNCTION_FIELDS, read_function)
    found = read(request.inside(where, given, ("type", *known)), where)
    return [replace(found, name=full_name(found.name, namespace), namespace=namespace)]


def _namespace(request: Fields, given: dict[str, Any], where: str) -> list[Function]:
    group = request.inside(where, given, ("type", "name", "description", "tools"))
    name, tools = group.text("name", longest=128, shortest=1), group.list("tools", MOST_TOOLS)
    group.text("description", longest=LONGEST_DESCRIPTION)
    if name is None or tools is None:
        raise refuse(where, given, '{"type": "namespace", "name": ..., "tools": [...]}')
    return [
        function
        for place, each in enumerate(tools)
        for function in _tool(request, each, f"{where}.tools[{place}]", name)
    ]
