"""The messages of a chat request as chat templates read them.

Assistants' messages come back with whatever another server put into them: what no template reads is noted.
"""

import re
from typing import Any

import msgspec

from quire.core.nearest import did_you_mean
from quire.protocol.media_parts import PART_SCHEMAS, is_media, read_part, text_part
from quire.protocol.openai.fields import Fields, refuse
from quire.protocol.openai.free_form import check_free_form
from quire.protocol.openai.legacy_calls import as_tool_turns
from quire.protocol.openai.schema import Schema, body, either, items, text
from quire.protocol.parsers.tools import INPUT

MOST_MESSAGES = 2048
MOST_PARTS = 1024
MOST_TOOL_CALLS = 128
LONGEST_CONTENT = 4_000_000
"""Characters; a tokenizer takes no more."""
_LONGEST_NAME = 256
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_OTHER_ROLE = r"[A-Za-z][A-Za-z0-9_-]{0,63}"
"""Some models know more: ipython, critic, observation. Whether the chat template shows such a turn is seen later."""
_WITHOUT_CONTENT = ("assistant", "tool", "function")
"""Who may say nothing: with null, and without the field."""
_WITH_MEDIA = ("user", "tool")
"""Who may send images beside text."""
_REASONING = ("reasoning_content", "reasoning", "thinking")
_FIELDS = (
    *("role", "content", "name", "tool_calls", "tool_call_id", "function_call", "refusal", "cache_control"),
    *_REASONING,
)
_TEXT_PARTS = ("text", "input_text", "output_text")
"""The last two are the Responses API's words, which some clients use here too."""
_CALL_FIELDS = ("name", "arguments")
_CALL_KINDS = ("function", "custom")

_TEXT: Schema = {"type": "string", "maxLength": LONGEST_CONTENT}
_SAID: tuple[Schema, ...] = (
    body({"type": {"enum": list(_TEXT_PARTS)}, "text": _TEXT}, required=("type", "text")),
    body({"type": {"const": "refusal"}, "refusal": _TEXT}, required=("type", "refusal")),
    body({"type": {"const": "thinking"}, "thinking": _TEXT}, required=("type", "thinking")),
)
_FUNCTION: Schema = body(
    {
        "name": {"type": "string", "minLength": 1, "maxLength": _LONGEST_NAME},
        "arguments": {
            "anyOf": [
                {"type": "string", "maxLength": LONGEST_CONTENT, "contentMediaType": "application/json"},
                {"type": "object"},
            ]
        },
    },
    required=("name", "arguments"),
)
_CUSTOM: Schema = body(
    {"name": {"type": "string", "minLength": 1, "maxLength": _LONGEST_NAME}, "input": _TEXT},
    required=("name", "input"),
)
_TOOL_CALL: Schema = either(
    body({"id": text(_LONGEST_NAME), "type": {"const": "function"}, "function": _FUNCTION}, required=("function",)),
    body({"id": text(_LONGEST_NAME), "type": {"const": "custom"}, "custom": _CUSTOM}, required=("type", "custom")),
)
_ABOUT: dict[str, Schema] = {
    "name": text(_LONGEST_NAME),
    "tool_call_id": text(_LONGEST_NAME),
    "tool_calls": items(_TOOL_CALL, MOST_TOOL_CALLS),
    "refusal": text(LONGEST_CONTENT, description="What is said where content is null."),
    **{name: text(LONGEST_CONTENT) for name in _REASONING},
}


_ANY_ROLE: Schema = either(
    {"enum": list(_ROLES)},
    {"type": "string", "minLength": 1, "maxLength": 64, "pattern": f"^{_OTHER_ROLE}$"},
    description="One of the usual, or a word of the model's own, where its chat template shows what that role says.",
)


def _speaking(role: Schema, *parts: Schema) -> Schema:
    listed: Schema = {"type": "array", "items": {"anyOf": list(parts)}, "maxItems": MOST_PARTS}
    fields: dict[str, Schema] = {"role": role, "content": {"anyOf": [_TEXT, listed]}, **_ABOUT}
    return body(fields, required=("role", "content"))


_SILENT: Schema = body(
    {
        "role": {"enum": list(_WITHOUT_CONTENT)},
        "content": {"type": "null"},
        "function_call": either(_FUNCTION, {"type": "null"}, description="tool_calls' predecessor."),
        **_ABOUT,
    },
    required=("role",),
)
MESSAGES: Schema = {
    "type": "array",
    "items": {
        "anyOf": [_speaking(_ANY_ROLE, *_SAID), _speaking({"enum": list(_WITH_MEDIA)}, *_SAID, *PART_SCHEMAS), _SILENT]
    },
    "minItems": 1,
    "maxItems": MOST_MESSAGES,
}


def read_messages(request: Fields) -> list[dict[str, Any]]:
    """Each message checked, its parts of text put together."""
    given = request.get("messages")
    if not isinstance(given, list) or not given:
        raise refuse("messages", given, "a list of at least one message")
    if len(given) > MOST_MESSAGES:
        raise refuse("messages", f"a list of {len(given)}", f"a list of at most {MOST_MESSAGES} messages")
    return as_tool_turns([_message(request, message, f"messages[{place}]") for place, message in enumerate(given)])


def _message(request: Fields, given: object, where: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise refuse(where, given, "an object with a role and content")
    message = request.inside(where, given, _FIELDS)
    role = message.text("role")
    _check_role(role, f"{where}.role")
    content, calls = message.get("content"), message.list("tool_calls", MOST_TOOL_CALLS)
    if content is None and role not in _WITHOUT_CONTENT:
        raise refuse(f"{where}.content", content, "text or a list of parts")
    said, thoughts = _content(message, content, f"{where}.content")
    if isinstance(said, list) and role not in _WITH_MEDIA:
        raise refuse(f"{where}.content", content, f"text, for only users and tools send media, and not the {role}")
    refusal = message.text("refusal", longest=LONGEST_CONTENT)
    found: dict[str, Any] = {"role": role, "content": refusal if said is None else said}
    for name in ("name", "tool_call_id"):
        found[name] = message.text(name, longest=_LONGEST_NAME)
    for name in _REASONING:
        found[name] = message.text(name, longest=LONGEST_CONTENT)
    if thoughts and not any(found[name] for name in _REASONING):
        found[_REASONING[0]] = thoughts
    if calls is not None:
        found["tool_calls"] = [
            _tool_call(message, call, f"{where}.tool_calls[{place}]") for place, call in enumerate(calls)
        ]
    legacy = message.object("function_call")
    if legacy is not None:
        found["function_call"] = _called(message.inside(f"{where}.function_call", legacy, _CALL_FIELDS), where)
    elif found["content"] is None and not calls:
        found["content"] = ""
    return {name: value for name, value in found.items() if value is not None or name == "content"}


def _check_role(role: str | None, where: str) -> None:
    """A role of the model's own is a word that is not nearly one of the usual: that would be a slip."""
    if role in _ROLES:
        return
    nearest = did_you_mean(role or "", _ROLES)
    if role is None or nearest or not re.fullmatch(_OTHER_ROLE, role):
        raise refuse(where, role, f"one of {', '.join(_ROLES)}, or a word that the chat template knows.{nearest}")


def _content(message: Fields, content: object, where: str) -> tuple[str | list[dict[str, Any]] | None, str | None]:
    """What is said, and what is thought; with media among it, what is said is a list of parts."""
    if content is None:
        return None, None
    if isinstance(content, str):
        return _bounded(content, where), None
    if not isinstance(content, list) or len(content) > MOST_PARTS:
        raise refuse(where, content, f"text or a list of at most {MOST_PARTS} parts")
    if any(map(is_media, content)):
        return _with_media(message, content, where), None
    parts = [_part(message, part, f"{where}[{place}]") for place, part in enumerate(content)]
    said = [text for kind, text in parts if kind != "thinking"]
    thoughts = [text for kind, text in parts if kind == "thinking"]
    return _bounded("\n".join(said), where), "\n".join(thoughts) or None


def _with_media(message: Fields, content: list[Any], where: str) -> list[dict[str, Any]]:
    """Parts in their order: images stand between the texts."""
    found: list[dict[str, Any]] = []
    for place, part in enumerate(content):
        here = f"{where}[{place}]"
        if is_media(part):
            found.append(read_part(message, part, here))
        else:
            found.append(text_part(_part(message, part, here)[1]))
    _bounded("".join(part.get("text", "") for part in found), where)
    return found


def _part(message: Fields, given: object, where: str) -> tuple[str, str]:
    """The kind of a part, and its text."""
    kind = given.get("type") if isinstance(given, dict) else None
    field = "text" if kind in _TEXT_PARTS else kind
    if not isinstance(given, dict) or field not in ("text", "refusal", "thinking"):
        raise refuse(
            where, given, '{"type": "text", "text": ...}, or of type image_url, audio_url, input_audio or video_url'
        )
    text = message.inside(where, given, ("type", field, "cache_control")).text(field)
    if text is None:
        raise refuse(f"{where}.{field}", None, "text")
    return field, text


def _bounded(text: str, where: str) -> str:
    if len(text) > LONGEST_CONTENT:
        raise refuse(where, f"a text of {len(text)} characters", f"at most {LONGEST_CONTENT} characters long")
    return text


def _tool_call(message: Fields, given: object, where: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise refuse(where, given, "an object with a function")
    call = message.inside(where, given, ("id", "type", *_CALL_KINDS, "cache_control"))
    kind = call.one_of("type", _CALL_KINDS) or "function"
    here, described = f"{where}.{kind}", call.object(kind) or {}
    if kind == "custom":
        spoken = _custom_call(call.inside(here, described, ("name", "input")), here)
    else:
        spoken = _called(call.inside(here, described, _CALL_FIELDS), here)
    identity = call.text("id", longest=_LONGEST_NAME)
    return ({} if identity is None else {"id": identity}) | {"type": "function", "function": spoken}


def _called(function: Fields, where: str) -> dict[str, Any]:
    name = function.text("name", longest=_LONGEST_NAME, shortest=1)
    if name is None:
        raise refuse(f"{where}.name", None, "the name of a function")
    return {"name": name, "arguments": _arguments(function, f"{where}.arguments")}


def _custom_call(custom: Fields, where: str) -> dict[str, Any]:
    """A call of free text as the model knows it: with one argument."""
    name, given = custom.text("name", longest=_LONGEST_NAME, shortest=1), custom.text("input", longest=LONGEST_CONTENT)
    if name is None or given is None:
        raise refuse(f"{where}.{'name' if name is None else 'input'}", None, "text")
    return {"name": name, "arguments": {INPUT: given}}


def _arguments(function: Fields, where: str) -> dict[str, Any]:
    """As an object, which is how templates read them; clients send them as JSON text, Ollama's as they are."""
    values = function.get("arguments")
    if not isinstance(values, dict):
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
