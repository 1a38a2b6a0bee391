"""Items of the Responses API that are no messages: calls, their results, and thinking, as a client sends them back."""

from typing import Any

import msgspec

from quire.protocol.openai.fields import Fields, refuse
from quire.protocol.openai.free_form import check_free_form
from quire.protocol.openai.messages import LONGEST_CONTENT, MOST_PARTS
from quire.protocol.openai.schema import Schema, body, items, only, text, words

Item = dict[str, Any]

KINDS = ("function_call", "function_call_output", "reasoning")
STATUSES = ("in_progress", "completed", "incomplete")
LONGEST_ITEM_ID = 256
_TEXT: Schema = {"type": "string", "maxLength": LONGEST_CONTENT}
_ID: Schema = {"type": "string", "minLength": 1, "maxLength": LONGEST_ITEM_ID}
_SAID: Schema = {"type": "string", "maxLength": LONGEST_CONTENT}


def _parts(kind: str) -> Schema:
    return items(body({"type": {"const": kind}, "text": _SAID}, required=("type", "text")), MOST_PARTS)


CALL_ITEMS: tuple[Schema, ...] = (
    body(
        {
            "type": {"const": "function_call"},
            "id": text(LONGEST_ITEM_ID),
            "call_id": _ID,
            "name": _ID,
            "arguments": {"type": "string", "maxLength": LONGEST_CONTENT, "contentMediaType": "application/json"},
            "status": words(*STATUSES),
        },
        required=("type", "call_id", "name", "arguments"),
    ),
    body(
        {
            "type": {"const": "function_call_output"},
            "id": text(LONGEST_ITEM_ID),
            "call_id": _ID,
            "output": {"anyOf": [_TEXT, {**_parts("input_text"), "type": "array"}]},
            "status": words(*STATUSES),
        },
        required=("type", "call_id", "output"),
    ),
    body(
        {
            "type": {"const": "reasoning"},
            "id": text(LONGEST_ITEM_ID),
            "summary": _parts("summary_text"),
            "content": _parts("reasoning_text"),
            "encrypted_content": only(None),
            "status": words(*STATUSES),
        },
        required=("type",),
    ),
)


def read_call_item(given: Item, where: str) -> tuple[str | None, Item]:
    """The id that the client gave the item, and the item without it."""
    kind = given["type"]
    known = {
        "function_call": ("call_id", "name", "arguments"),
        "function_call_output": ("call_id", "output"),
        "reasoning": ("summary", "content", "encrypted_content"),
    }[kind]
    item = Fields(given, known=("type", "id", "status", *known), where=f"{where}.")
    status = item.one_of("status", STATUSES) or "completed"
    read = {"function_call": _call, "function_call_output": _output, "reasoning": _reasoning}[kind]
    return item.text("id", longest=LONGEST_ITEM_ID), {"type": kind, "status": status, **read(item, where)}


def arguments_of(item: Item) -> dict[str, Any]:
    """A call's arguments as templates read them; a model may have written something that is no object."""
    try:
        found = msgspec.json.decode(item["arguments"] or "{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}


def _call(item: Fields, where: str) -> Item:
    call_id, name = _named(item, "call_id", where), _named(item, "name", where)
    arguments = item.text("arguments", longest=LONGEST_CONTENT)
    if arguments is None:
        raise refuse(f"{where}.arguments", None, "a JSON object as text")
    check_free_form(f"{where}.arguments", arguments_of({"arguments": arguments}))
    return {"call_id": call_id, "name": name, "arguments": arguments}


def _output(item: Fields, where: str) -> Item:
    given = item.get("output")
    if isinstance(given, list):
        given = "\n".join(_texts(given, "input_text", f"{where}.output"))
    if not isinstance(given, str) or len(given) > LONGEST_CONTENT:
        raise refuse(f"{where}.output", given, "text or a list of input_text parts")
    return {"call_id": _named(item, "call_id", where), "output": given}


def _reasoning(item: Fields, where: str) -> Item:
    item.only("encrypted_content")
    found: dict[str, list[Item]] = {}
    for name, kind in (("summary", "summary_text"), ("content", "reasoning_text")):
        texts = _texts(item.list(name, MOST_PARTS) or [], kind, f"{where}.{name}")
        found[name] = [{"type": kind, "text": said} for said in texts]
    return found


def _texts(given: list[Any], kind: str, where: str) -> list[str]:
    for place, part in enumerate(given[: MOST_PARTS + 1]):
        said = part.get("text") if isinstance(part, dict) else None
        good = isinstance(part, dict) and part.get("type") == kind and part.keys() == {"type", "text"}
        if place == MOST_PARTS or not good or not isinstance(said, str) or len(said) > LONGEST_CONTENT:
            raise refuse(f"{where}[{place}]", part, f'{{"type": "{kind}", "text": ...}}, at most {MOST_PARTS} times')
    return [part["text"] for part in given]


def _named(item: Fields, name: str, where: str) -> str:
    found = item.text(name, longest=LONGEST_ITEM_ID, shortest=1)
    if found is None:
        raise refuse(f"{where}.{name}", None, f"text of 1 to {LONGEST_ITEM_ID} characters")
    return found
