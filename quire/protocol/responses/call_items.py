"""Items of the Responses API that are no messages: calls, their results, and thinking, as a client sends them back."""

from typing import Any

import msgspec

from quire.protocol.openai.fields import Fields, refuse
from quire.protocol.openai.free_form import check_free_form
from quire.protocol.openai.messages import LONGEST_CONTENT, MOST_PARTS
from quire.protocol.openai.schema import Schema, body, items, text, words
from quire.protocol.parsers.tools import INPUT

Item = dict[str, Any]

KINDS = ("function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output", "reasoning")
CALLS = ("function_call", "custom_tool_call")
OUTPUTS = ("function_call_output", "custom_tool_call_output")
STATUSES = ("in_progress", "completed", "incomplete")
LONGEST_ITEM_ID = 256
LONGEST_SEALED = 2 * LONGEST_CONTENT
_TEXT: Schema = {"type": "string", "maxLength": LONGEST_CONTENT}
_ID: Schema = {"type": "string", "minLength": 1, "maxLength": LONGEST_ITEM_ID}
_SAID: Schema = {"type": "string", "maxLength": LONGEST_CONTENT}
_OUTPUT_PARTS = ("input_text", "output_text", "text")


def _parts(kind: str) -> Schema:
    return items(body({"type": {"const": kind}, "text": _SAID}, required=("type", "text")), MOST_PARTS)


CALL_ITEMS: tuple[Schema, ...] = (
    body(
        {
            "type": {"const": "function_call"},
            "id": text(LONGEST_ITEM_ID),
            "call_id": _ID,
            "name": _ID,
            "namespace": text(LONGEST_ITEM_ID),
            "arguments": {"type": "string", "maxLength": LONGEST_CONTENT, "contentMediaType": "application/json"},
            "status": words(*STATUSES),
        },
        required=("type", "call_id", "name", "arguments"),
    ),
    body(
        {
            "type": {"const": "custom_tool_call"},
            "id": text(LONGEST_ITEM_ID),
            "call_id": _ID,
            "name": _ID,
            "namespace": text(LONGEST_ITEM_ID),
            "input": _TEXT,
            "status": words(*STATUSES),
        },
        required=("type", "call_id", "name", "input"),
    ),
    body(
        {
            "type": {"enum": list(OUTPUTS)},
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
            "encrypted_content": text(LONGEST_SEALED, description="As this server gave it."),
            "status": words(*STATUSES),
        },
        required=("type",),
    ),
)


def read_call_item(request: Fields, given: Item, where: str) -> tuple[str | None, Item]:
    """The id that the client gave the item, and the item without it."""
    kind = given["type"]
    known = {
        "function_call": ("call_id", "name", "namespace", "arguments"),
        "custom_tool_call": ("call_id", "name", "namespace", "input"),
        "function_call_output": ("call_id", "output"),
        "custom_tool_call_output": ("call_id", "output"),
        "reasoning": ("summary", "content", "encrypted_content"),
    }[kind]
    item = request.inside(where, given, ("type", "id", "status", "cache_control", *known))
    status = item.get("status")
    item.hint("status", *STATUSES)
    read = {"function_call": _call, "custom_tool_call": _custom_call, "reasoning": _reasoning}.get(kind, _output)
    found = {"type": kind, "status": status if status in STATUSES else "completed", **read(item, where)}
    return item.text("id", longest=LONGEST_ITEM_ID), found


def arguments_of(item: Item) -> dict[str, Any]:
    """A call's arguments as templates read them; a model may have written something that is no object."""
    if "input" in item:
        return {INPUT: item["input"]}
    try:
        found = msgspec.json.decode(item["arguments"] or "{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}


def _call(item: Fields, where: str) -> Item:
    arguments = item.text("arguments", longest=LONGEST_CONTENT)
    if arguments is None:
        raise refuse(f"{where}.arguments", None, "a JSON object as text")
    check_free_form(f"{where}.arguments", arguments_of({"arguments": arguments}))
    return {**_called(item, where), "arguments": arguments}


def _custom_call(item: Fields, where: str) -> Item:
    given = item.text("input", longest=LONGEST_CONTENT)
    if given is None:
        raise refuse(f"{where}.input", None, "text")
    return {**_called(item, where), "input": given}


def _called(item: Fields, where: str) -> Item:
    found = {"call_id": _named(item, "call_id", where), "name": _named(item, "name", where)}
    namespace = item.text("namespace", longest=LONGEST_ITEM_ID)
    return found | ({} if namespace is None else {"namespace": namespace})


def _output(item: Fields, where: str) -> Item:
    given = item.get("output")
    if isinstance(given, list):
        given = "\n".join(_texts(item, given, _OUTPUT_PARTS, f"{where}.output"))
    if not isinstance(given, str) or len(given) > LONGEST_CONTENT:
        raise refuse(f"{where}.output", given, "text or a list of input_text parts")
    return {"call_id": _named(item, "call_id", where), "output": given}


def _reasoning(item: Fields, where: str) -> Item:
    found: dict[str, Any] = {}
    for name, kinds in (("summary", ("summary_text",)), ("content", ("reasoning_text", "text"))):
        texts = _texts(item, item.list(name, MOST_PARTS) or [], kinds, f"{where}.{name}")
        found[name] = [{"type": kinds[0], "text": said} for said in texts]
    sealed = item.text("encrypted_content", longest=LONGEST_SEALED)
    return found | ({} if sealed is None else {"encrypted_content": sealed})


def _texts(item: Fields, given: list[Any], kinds: tuple[str, ...], where: str) -> list[str]:
    found: list[str] = []
    for place, part in enumerate(given[: MOST_PARTS + 1]):
        good = isinstance(part, dict) and part.get("type") in kinds and isinstance(part.get("text"), str)
        if place == MOST_PARTS or not good or len(part["text"]) > LONGEST_CONTENT:
            raise refuse(
                f"{where}[{place}]", part, f'{{"type": "{kinds[0]}", "text": ...}}, at most {MOST_PARTS} times'
            )
        item.inside(f"{where}[{place}]", part, ("type", "text", "cache_control"))
        found.append(part["text"])
    return found


def _named(item: Fields, name: str, where: str) -> str:
    found = item.text(name, longest=LONGEST_ITEM_ID, shortest=1)
    if found is None:
        raise refuse(f"{where}.{name}", None, f"text of 1 to {LONGEST_ITEM_ID} characters")
    return found
