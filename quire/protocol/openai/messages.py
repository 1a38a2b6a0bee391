"""The messages of a chat request as chat templates read them."""

from typing import Any

import msgspec

from quire.protocol.openai.fields import Fields, refuse
from quire.protocol.openai.free_form import check_free_form
from quire.protocol.openai.schema import Schema, body, items, text

MOST_MESSAGES = 2048
MOST_PARTS = 1024
MOST_TOOL_CALLS = 128
LONGEST_CONTENT = 4_000_000
"""Characters; a tokenizer takes no more."""
_LONGEST_NAME = 256
_ROLES = ("system", "developer", "user", "assistant", "tool")
_REASONING = ("reasoning_content", "reasoning", "thinking")
_FIELDS = ("role", "content", "name", "tool_calls", "tool_call_id", *_REASONING)

_TEXT: Schema = {"type": "string", "maxLength": LONGEST_CONTENT}
_PART: Schema = body({"type": {"const": "text"}, "text": _TEXT}, required=("type", "text"))
_FUNCTION: Schema = body(
    {
        "name": {"type": "string", "minLength": 1, "maxLength": _LONGEST_NAME},
        "arguments": {"type": "string", "maxLength": LONGEST_CONTENT, "contentMediaType": "application/json"},
    },
    required=("name", "arguments"),
)
_TOOL_CALL: Schema = body(
    {"id": text(_LONGEST_NAME), "type": {"const": "function"}, "function": _FUNCTION}, required=("function",)
)
_CONTENT: Schema = {"anyOf": [_TEXT, {"type": "array", "items": _PART, "maxItems": MOST_PARTS}]}
_ABOUT: dict[str, Schema] = {
    "name": text(_LONGEST_NAME),
    "tool_call_id": text(_LONGEST_NAME),
    **{name: text(LONGEST_CONTENT) for name in _REASONING},
}
_SPEAKING: Schema = body(
    {
        "role": {"enum": list(_ROLES)},
        "content": _CONTENT,
        "tool_calls": items(_TOOL_CALL, MOST_TOOL_CALLS),
        **_ABOUT,
    },
    required=("role", "content"),
)
_CALLING: Schema = body(
    {
        "role": {"const": "assistant"},
        "content": {"type": "null"},
        "tool_calls": items(_TOOL_CALL, MOST_TOOL_CALLS, least=1),
        **_ABOUT,
    },
    required=("role", "tool_calls"),
)
MESSAGES: Schema = {
    "type": "array",
    "items": {"anyOf": [_SPEAKING, _CALLING]},
    "minItems": 1,
    "maxItems": MOST_MESSAGES,
}


def read_messages(given: object) -> list[dict[str, Any]]:
    """Each message checked, its parts of text put together."""
    if not isinstance(given, list) or not given:
        raise refuse("messages", given, "a list of at least one message")
    if len(given) > MOST_MESSAGES:
        raise refuse("messages", f"a list of {len(given)}", f"a list of at most {MOST_MESSAGES} messages")
    return [_message(message, f"messages[{place}]") for place, message in enumerate(given)]


def _message(given: object, where: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise refuse(where, given, "an object with a role and content")
    message = Fields(given, known=_FIELDS, where=f"{where}.")
    role = message.text("role")
    if role not in _ROLES:
        raise refuse(f"{where}.role", role, f"one of {', '.join(_ROLES)}")
    content, calls = message.get("content"), message.list("tool_calls", MOST_TOOL_CALLS)
    if content is None and not (role == "assistant" and calls):
        raise refuse(f"{where}.content", content, "text or a list of parts")
    found: dict[str, Any] = {"role": role, "content": _text(content, f"{where}.content")}
    for name in ("name", "tool_call_id"):
        found[name] = message.text(name, longest=_LONGEST_NAME)
    for name in _REASONING:
        found[name] = message.text(name, longest=LONGEST_CONTENT)
    if calls is not None:
        found["tool_calls"] = [_tool_call(call, f"{where}.tool_calls[{place}]") for place, call in enumerate(calls)]
    return {name: value for name, value in found.items() if value is not None or name == "content"}


def _text(content: object, where: str) -> str | None:
    if content is None:
        return None
    if isinstance(content, str):
        if len(content) > LONGEST_CONTENT:
            raise refuse(where, f"a text of {len(content)} characters", f"at most {LONGEST_CONTENT} characters long")
        return content
    if not isinstance(content, list) or len(content) > MOST_PARTS:
        raise refuse(where, content, f"text or a list of at most {MOST_PARTS} parts")
    return "\n".join(_part(part, f"{where}[{place}]") for place, part in enumerate(content))


def _part(given: object, where: str) -> str:
    if not isinstance(given, dict) or given.get("type") != "text" or not isinstance(given.get("text"), str):
        raise refuse(where, given, '{"type": "text", "text": ...}, for nothing else is supported')
    Fields(given, known=("type", "text"), where=f"{where}.")
    return _text(given["text"], where) or ""


def _tool_call(given: object, where: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise refuse(where, given, "an object with a function")
    call = Fields(given, known=("id", "type", "function"), where=f"{where}.")
    call.only("type", "function")
    function = Fields(call.object("function") or {}, known=("name", "arguments"), where=f"{where}.function.")
    name = function.text("name", longest=_LONGEST_NAME, shortest=1)
    if name is None:
        raise refuse(f"{where}.function.name", None, "the name of a function")
    identity = call.text("id", longest=_LONGEST_NAME)
    spoken = {"name": name, "arguments": _arguments(function, f"{where}.function.arguments")}
    return ({} if identity is None else {"id": identity}) | {"type": "function", "function": spoken}


def _arguments(function: Fields, where: str) -> dict[str, Any]:
    """As an object, which is how templates read them; clients send them as JSON text."""
    spoken = function.text("arguments", longest=LONGEST_CONTENT)
    if spoken is None:
        raise refuse(where, None, "a JSON object as text")
    try:
        values = msgspec.json.decode(spoken.strip() or "{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise refuse(where, spoken, "a JSON object as text")
    check_free_form(where, values)
    return values
