"""The messages of a chat request as chat templates read them."""

from typing import Any

from quire.engine.openai.fields import Fields, refuse

_ROLES = ("system", "developer", "user", "assistant", "tool")
_FIELDS = (
    *("role", "content", "name", "tool_calls", "tool_call_id"),
    *("reasoning_content", "reasoning", "thinking"),
)


def read_messages(given: object) -> list[dict[str, Any]]:
    """Each message checked, its parts of text put together."""
    if not isinstance(given, list) or not given:
        raise refuse("messages", given, "a list of at least one message")
    return [_message(message, f"messages[{place}]") for place, message in enumerate(given)]


def _message(given: object, where: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise refuse(where, given, "an object with a role and content")
    message = Fields(given, known=_FIELDS, where=f"{where}.")
    role = message.text("role")
    if role not in _ROLES:
        raise refuse(f"{where}.role", role, f"one of {', '.join(_ROLES)}")
    content = message.get("content")
    if content is None and not (role == "assistant" and message.get("tool_calls")):
        raise refuse(f"{where}.content", content, "text or a list of parts")
    others = message.present(*(name for name in _FIELDS if name not in ("role", "content")))
    return {"role": role, "content": _text(content, f"{where}.content"), **others}


def _text(content: object, where: str) -> str | None:
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise refuse(where, content, "text or a list of parts")
    return "\n".join(_part(part, f"{where}[{place}]") for place, part in enumerate(content))


def _part(given: object, where: str) -> str:
    if not isinstance(given, dict) or given.get("type") != "text" or not isinstance(given.get("text"), str):
        raise refuse(where, given, '{"type": "text", "text": ...}, for nothing else is supported')
    Fields(given, known=("type", "text"), where=f"{where}.")
    text: str = given["text"]
    return text
