"""The items of OpenAI's Responses API: what a client sends as input, as it is stored, and as templates read it."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from quire.core.checks import MAX_TOKENS
from quire.core.errors import InvalidRequest
from quire.core.media import MediaKind
from quire.protocol.ids import is_id, new_id
from quire.protocol.media_parts import MediaSource, inline_audio_url, media_part, text_part
from quire.protocol.media_parts import read_part as read_media_part
from quire.protocol.openai.fields import Fields, refuse
from quire.protocol.openai.messages import LONGEST_CONTENT, MOST_MESSAGES, MOST_PARTS
from quire.protocol.responses.call_items import (
    CALLS,
    KINDS,
    LONGEST_ITEM_ID,
    OUTPUTS,
    STATUSES,
    arguments_of,
    read_call_item,
)
from quire.protocol.responses.tools import full_name

Item = dict[str, Any]
Message = dict[str, Any]

ROLES = ("user", "assistant", "system", "developer")
REFERENCE = "item_reference"
"""An item that stands for one of a stored response."""
_FIELDS = ("type", "id", "role", "content", "status", "cache_control")
_OF_PARTS = ("text", "refusal", "annotations", "logprobs", "cache_control")
_SERVER_ITEMS = (
    *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_list_tools"),
    *("mcp_call", "mcp_approval_request", "mcp_approval_response", "tool_search_call", "tool_search_output"),
)
"""What tools of another server's own left behind."""
_PREFIXES = {
    "message": "msg_",
    "function_call": "fc_",
    "function_call_output": "fco_",
    "custom_tool_call": "ctc_",
    "custom_tool_call_output": "ctco_",
    "reasoning": "rs_",
}
_TEMPLATE_ROLES = {"developer": "system"}
"""OpenAI's new word for the old role; templates know the old one."""


def read_input(request: Fields) -> list[Item]:
    """The input of a body as items, each with an id; references are still to be looked up."""
    given = request.get("input")
    if isinstance(given, str):
        return [_item("user", [_part("user", _checked(given, "input"))], new_id("msg_"))]
    if not isinstance(given, list) or not given:
        raise refuse("input", given, "text or a list of at least one item")
    return read_items(request, "input", given, MOST_MESSAGES)


def read_items(request: Fields, field: str, given: list[Any], most: int) -> list[Item]:
    """A list of items, at most `most`, as `read_input` gives them."""
    if len(given) > most:
        raise refuse(field, f"a list of {len(given)}", f"a list of at most {most} items")
    taken: set[str] = set()
    read = [_read_item(request, each, f"{field}[{place}]", taken) for place, each in enumerate(given)]
    return [item for item in read if item is not None]


def output_item(identity: str, text: str, status: str, logprobs: Sequence[Item] = ()) -> Item:
    """The model's message."""
    return _item("assistant", [output_part(text, logprobs)], identity, status)


def output_part(text: str, logprobs: Sequence[Item] = ()) -> Item:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": list(logprobs)}


def messages_of(instructions: str | None, items: Sequence[Item]) -> list[Message]:
    """For a chat template. What the system says at the start is put together, as templates take one such message."""
    opening = [] if instructions is None else [instructions]
    turns: list[Message] = []
    thoughts: list[str] = []
    """Thinking whose message is still to come."""
    for item in items:
        kind, last = item["type"], turns[-1] if turns else {}
        if kind == "reasoning":
            thoughts += [part["text"] for part in item["content"] or item["summary"]]
        elif kind in OUTPUTS:
            turns.append({"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]})
        elif kind in CALLS:
            if last.get("role") != "assistant" or thoughts:
                turns.append({"role": "assistant", "content": None, **_thought(thoughts)})
            turns[-1].setdefault("tool_calls", []).append(_spoken_call(item))
        else:
            role = _TEMPLATE_ROLES.get(item["role"], item["role"])
            said = _said(item["content"])
            if role == "system" and not turns and isinstance(said, str):
                opening.append(said)
            else:
                turns.append({"role": role, "content": said, **(_thought(thoughts) if role == "assistant" else {})})
    system = "\n\n".join(text for text in opening if text)
    return [*([{"role": "system", "content": system}] if system else []), *turns]


def _said(parts: Sequence[Item]) -> str | list[Item]:
    """Text, or with images among it a list of parts."""
    if all("text" in part for part in parts):
        return "\n".join(part["text"] for part in parts)
    return [text_part(part["text"]) if "text" in part else media_part(_source(part)) for part in parts]


def _source(part: Item) -> MediaSource:
    if part["type"] == "input_audio":
        sound = part["input_audio"]
        return MediaSource("audio", "input", inline_audio_url(sound["data"], sound["format"]))
    kind: MediaKind = "video" if part["type"] == "video_url" else "image"
    return MediaSource(kind, "input", part.get(f"{kind}_url"), part.get("file_id"))


def _thought(thoughts: list[str]) -> Message:
    """The thinking of the message that comes now."""
    found = "\n".join(thoughts)
    thoughts.clear()
    return {"reasoning_content": found} if found else {}


def _spoken_call(item: Item) -> Message:
    return {
        "id": item["call_id"],
        "type": "function",
        "function": {"name": full_name(item["name"], item.get("namespace")), "arguments": arguments_of(item)},
    }


def _read_item(request: Fields, given: object, where: str, taken: set[str]) -> Item | None:
    if not isinstance(given, dict):
        raise refuse(where, given, "an object, such as a message with a role and content")
    kind = given.get("type")
    if kind in KINDS:
        known, call = read_call_item(request, given, where)
        return {"id": _identity(known, kind, taken), **call}
    if kind == REFERENCE:
        return {"type": REFERENCE, "id": request.inside(where, given, ("type", "id")).text("id") or ""}
    error = InvalidRequest(
        f"{where} is an item of type {str(kind)[:40]!r}; only message, {', '.join((*KINDS, REFERENCE))} are supported",
        field=where.split("[", maxsplit=1)[0],
    )
    if kind in _SERVER_ITEMS:
        request.ignored.note(f"{where}.{kind}", lambda: error)
        return None
    if kind not in (None, "message"):
        raise error
    item = request.inside(where, given, _FIELDS)
    role = item.one_of("role", ROLES)
    if role is None:
        raise refuse(f"{where}.role", None, f"one of {', '.join(ROLES)}")
    status = item.as_hint("status", partial(item.one_of, "status", STATUSES)) or "completed"
    identity = _identity(item.text("id", longest=LONGEST_ITEM_ID), "message", taken)
    return _item(role, _read_content(item, role, f"{where}.content"), identity, status)


def _identity(known: str | None, kind: str, taken: set[str]) -> str:
    """The id that the client gave, or one of ours: ids tell the items of a list apart."""
    if known is None or not is_id(known) or known in taken:
        known = new_id(_PREFIXES[kind])
    taken.add(known)
    return known


def _read_content(item: Fields, role: str, where: str) -> list[Item]:
    given = item.get("content")
    if isinstance(given, str):
        return [_part(role, _checked(given, where))]
    if given in (None, []) and role == "assistant":
        return [_part(role, "")]
    if not isinstance(given, list) or not 0 < len(given) <= MOST_PARTS:
        raise refuse(where, given, f"text or a list of 1 to {MOST_PARTS} parts")
    found: list[Item] = []
    for place, part in enumerate(given):
        here = f"{where}[{place}]"
        kind = part.get("type") if role == "user" and isinstance(part, dict) else None
        if isinstance(kind, str) and kind in _MEDIA:
            found.append(_MEDIA[kind](item, part, here))
        else:
            found.append(_part(role, _read_part(item, part, role, here)))
    return found


def _media(item: Fields, given: Item, where: str) -> Item:
    """As it is stored: where the image or the video is, and nothing else."""
    source: MediaSource = read_media_part(item, given, where)["media"]
    if source.kind == "video":
        kept = {"video_url": source.url, "file_id": source.file_id}
        return {"type": "video_url", **{name: value for name, value in kept.items() if value is not None}}
    kept = {"image_url": source.url, "file_id": source.file_id}
    return {
        "type": "input_image",
        "detail": "auto",
        **{name: value for name, value in kept.items() if value is not None},
    }


def _audio(item: Fields, given: Item, where: str) -> Item:
    """As it came, once it is known to be what it says."""
    read_media_part(item, given, where)
    return {"type": "input_audio", "input_audio": dict(given["input_audio"])}


_MEDIA = {"input_image": _media, "video_url": _media, "input_audio": _audio}


def _read_part(item: Fields, given: object, role: str, where: str) -> str:
    kinds = ("output_text", "input_text", "text", "refusal") if role == "assistant" else ("input_text", "text")
    kind = given.get("type") if isinstance(given, dict) else None
    if not isinstance(given, dict) or kind not in kinds:
        wanted = f'{{"type": "{kinds[0]}", "text": ...}}'
        raise refuse(where, given, f"{wanted}, for nothing else is supported")
    # what a client got with an answer it may send back with it: logprobs and annotations too
    part = item.inside(where, given, ("type", *_OF_PARTS))
    name = "refusal" if kind == "refusal" else "text"
    text = part.text(name)
    if text is None:
        raise refuse(f"{where}.{name}", None, "text")
    part.as_hint("logprobs", partial(part.list, "logprobs", MAX_TOKENS))
    part.hint("annotations", [])
    return _checked(text, where)


def _checked(text: str, where: str) -> str:
    if len(text) > LONGEST_CONTENT:
        raise refuse(where, f"a text of {len(text)} characters", f"at most {LONGEST_CONTENT} characters long")
    return text


def _item(role: str, content: list[Item], identity: str, status: str = "completed") -> Item:
    return {"id": identity, "type": "message", "role": role, "status": status, "content": content}


def _part(role: str, text: str) -> Item:
    return output_part(text) if role == "assistant" else {"type": "input_text", "text": text}
