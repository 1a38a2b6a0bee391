"""The messages of Anthropic's API as chat templates read them: blocks of text, thinking, calls and their results."""

from functools import partial
from typing import Any

from quire.core.errors import InvalidRequest
from quire.protocol.media_parts import LONGEST_URL, MediaSource, media_part, text_part
from quire.protocol.openai.fields import Fields, refuse
from quire.protocol.openai.free_form import check_free_form
from quire.protocol.openai.messages import LONGEST_CONTENT, MOST_PARTS

Message = dict[str, Any]

ROLES = ("user", "assistant", "system")
LONGEST_ID = 256
_BLOCKS: dict[str, tuple[str, ...]] = {
    "user": ("text", "image", "tool_result"),
    "assistant": ("text", "thinking", "redacted_thinking", "tool_use"),
    "system": ("text",),
}
_UNSUPPORTED = ("document", "search_result", "server_tool_use", "web_search_tool_result")


def read_turn(request: Fields, given: object, where: str, *, is_last: bool) -> list[Message]:
    """A message as one turn, or as several: results of calls are turns of their own."""
    if not isinstance(given, dict):
        raise refuse(where, given, "an object with a role and content")
    message = request.inside(where, given, ("role", "content", "cache_control"))
    role = message.one_of("role", ROLES)
    if role is None:
        raise refuse(f"{where}.role", role, f"one of {', '.join(ROLES)}")
    content, may_be_empty = message.get("content"), is_last and role == "assistant"
    if not isinstance(content, list):
        return [{"role": role, "content": read_text(message, content, f"{where}.content", may_be_empty=may_be_empty)}]
    if len(content) > MOST_PARTS:
        raise refuse(f"{where}.content", f"a list of {len(content)}", f"a list of at most {MOST_PARTS} blocks")
    turn = _Turn(message, role)
    for place, block in enumerate(content):
        turn.take(block, f"{where}.content[{place}]")
    return turn.messages(f"{where}.content", may_be_empty=may_be_empty)


def read_text(inside: Fields, given: object, where: str, *, may_be_empty: bool) -> str:
    """Text, or blocks of nothing else."""
    if isinstance(given, list):
        if len(given) > MOST_PARTS:
            raise refuse(where, f"a list of {len(given)}", f"a list of at most {MOST_PARTS} blocks")
        text = "\n".join(_text_block(inside, block, f"{where}[{place}]") for place, block in enumerate(given))
    elif isinstance(given, str):
        text = given
    else:
        raise refuse(where, given, "text or a list of text blocks")
    if len(text) > LONGEST_CONTENT:
        raise refuse(where, f"a text of {len(text)} characters", f"at most {LONGEST_CONTENT} characters long")
    if not text and not may_be_empty:
        raise refuse(where, given, "text that is not empty")
    return text


def check_cache_control(inside: Fields, where: str) -> None:
    """Of `inside`; every prefix is cached, and how long one is wanted is asked of the whole body."""
    inside.as_hint("cache_control", partial(_check_cache_control, inside, where))


def _check_cache_control(inside: Fields, where: str) -> None:
    given = inside.object("cache_control")
    if given is None:
        return
    control = inside.inside(where, given, ("type", "ttl"))
    if control.one_of("type", ("ephemeral",)) is None:
        raise refuse(f"{where}.type", None, "ephemeral")
    control.hint("ttl", "5m", "1h")


def joined(messages: list[Message]) -> list[Message]:
    """Messages of one role that follow each other are one turn: templates want the roles to alternate."""
    turns: list[Message] = []
    for message in messages:
        last = turns[-1] if turns else {}
        if last.keys() == message.keys() == {"role", "content"} and last["role"] == message["role"]:
            turns[-1] = {"role": message["role"], "content": _together(last["content"], message["content"])}
        else:
            turns.append(message)
    return turns


def _together(first: Any, second: Any) -> Any:
    """Two contents as one, of text or of parts."""
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n{second}"
    return [part for each in (first, second) for part in ([text_part(each)] if isinstance(each, str) else each)]


class _Turn:
    """The blocks of one message, sorted by what templates do with them."""

    def __init__(self, message: Fields, role: str) -> None:
        self._message = message
        self._role = role
        self._texts: list[str] = []
        self._parts: list[Message] = []
        """Texts and images in their order."""
        self._has_images = False
        self._thoughts: list[str] = []
        self._calls: list[Message] = []
        self._results: list[Message] = []

    def take(self, given: object, where: str) -> None:
        kind = given.get("type") if isinstance(given, dict) else None
        allowed = _BLOCKS[self._role]
        if kind in _UNSUPPORTED or (
            isinstance(kind, str) and kind in sum(_BLOCKS.values(), ()) and kind not in allowed
        ):
            raise InvalidRequest(
                f"{where} is a block of type {kind}; of the {self._role} only {', '.join(allowed)} are supported",
                field="messages",
            )
        if not isinstance(given, dict) or kind not in allowed:
            raise refuse(where, given, '{"type": "text", "text": ...} or another block')
        if kind == "text":
            self._texts.append(_text_block(self._message, given, where))
            self._parts.append(text_part(self._texts[-1]))
        elif kind == "image":
            self._parts.append(media_part(_image(self._message, given, where)))
            self._has_images = True
        elif kind == "thinking":
            block = self._message.inside(where, given, ("type", "thinking", "signature", "cache_control"))
            self._thoughts.append(block.text("thinking", longest=LONGEST_CONTENT) or "")
            block.text("signature")  # it proves nothing here, and clients send it back as it came
        elif kind == "redacted_thinking":
            # encrypted for somebody else, and by Anthropic's rules only to be sent back
            self._message.inside(where, given, ("type", "data", "cache_control")).text("data")
        elif kind == "tool_use":
            self._calls.append(_call(self._message, given, where))
        else:
            self._results.append(_result(self._message, given, where))

    def messages(self, where: str, *, may_be_empty: bool) -> list[Message]:
        text = "\n".join(self._texts)
        if len(text) > LONGEST_CONTENT:
            raise refuse(where, f"a text of {len(text)} characters", f"at most {LONGEST_CONTENT} characters long")
        if self._has_images:
            return [*self._results, {"role": self._role, "content": self._parts}]
        if not (text or self._calls or self._results or may_be_empty):
            raise refuse(where, "without text", "text that is not empty")
        if not text and self._results:
            return self._results
        message: Message = {"role": self._role, "content": text or (None if self._calls else "")}
        if self._thoughts:
            message["reasoning_content"] = "\n".join(self._thoughts)
        if self._calls:
            message["tool_calls"] = self._calls
        return [*self._results, message]


def _image(message: Fields, given: dict[str, Any], where: str) -> MediaSource:
    """A block with a source: base64, a URL, or an uploaded file."""
    block = message.inside(where, given, ("type", "source", "cache_control"))
    check_cache_control(block, f"{where}.cache_control")
    source = block.inside(
        f"{where}.source", block.object("source") or {}, ("type", "media_type", "data", "url", "file_id")
    )
    kind = source.one_of("type", ("base64", "url", "file"))
    if kind == "url":
        url = source.text("url", longest=LONGEST_URL)
        if url is not None:
            return MediaSource("image", where, url)
    if kind == "file":
        identity = source.text("file_id", longest=LONGEST_ID)
        if identity is not None:
            return MediaSource("image", where, file_id=identity)
    media_type, data = source.text("media_type", longest=LONGEST_ID), source.text("data", longest=LONGEST_URL)
    if kind != "base64" or media_type is None or data is None:
        raise refuse(f"{where}.source", given.get("source"), '{"type": "base64", "media_type": ..., "data": ...}')
    return MediaSource("image", where, f"data:{media_type};base64,{data}")


def _call(message: Fields, given: dict[str, Any], where: str) -> Message:
    block = message.inside(where, given, ("type", "id", "name", "input", "cache_control", "caller"))
    check_cache_control(block, f"{where}.cache_control")
    identity, name = (
        block.text("id", longest=LONGEST_ID, shortest=1),
        block.text("name", longest=LONGEST_ID, shortest=1),
    )
    arguments = block.object("input")
    if identity is None or name is None or arguments is None:
        raise refuse(where, given, '{"type": "tool_use", "id": ..., "name": ..., "input": {...}}')
    block.hint("caller", {"type": "direct"})
    check_free_form(f"{where}.input", arguments)
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def _result(message: Fields, given: dict[str, Any], where: str) -> Message:
    block = message.inside(where, given, ("type", "tool_use_id", "content", "is_error", "cache_control"))
    check_cache_control(block, f"{where}.cache_control")
    identity = block.text("tool_use_id", longest=LONGEST_ID, shortest=1)
    if identity is None:
        raise refuse(f"{where}.tool_use_id", None, "the id of a tool_use block")
    content = block.get("content")
    if isinstance(content, list):
        content = [_found_tool(part) for part in content]
    text = "" if content is None else read_text(block, content, f"{where}.content", may_be_empty=True)
    # templates have no word for a failure
    return {"role": "tool", "tool_call_id": identity, "content": f"Error: {text}" if block.flag("is_error") else text}


def _found_tool(part: object) -> object:
    """A tool that a search found, as text: it is among the tools already, for none is loaded later."""
    if isinstance(part, dict) and part.get("type") == "tool_reference" and isinstance(part.get("tool_name"), str):
        return {"type": "text", "text": f"The tool {part['tool_name']} is available."}
    return part


def _text_block(inside: Fields, given: object, where: str) -> str:
    kind = given.get("type") if isinstance(given, dict) else None
    if kind in (*_UNSUPPORTED, "image"):
        raise InvalidRequest(
            f"{where} is a block of type {kind}; only text blocks are supported", field=where.split("[", maxsplit=1)[0]
        )
    if not isinstance(given, dict) or kind != "text":
        raise refuse(where, given, '{"type": "text", "text": ...}')
    block = inside.inside(where, given, ("type", "text", "cache_control", "citations"))
    check_cache_control(block, f"{where}.cache_control")
    block.hint("citations", [])
    text = block.text("text")
    if not text:
        raise refuse(f"{where}.text", text, "text that is not empty")
    return text
