"""Bodies of OpenAI's Conversations API: what a conversation begins with, what is added to it, and its metadata."""

from dataclasses import dataclass

from quire.protocol.ignored import Ignored
from quire.protocol.openai.fields import Fields, object_of, refuse
from quire.protocol.openai.options import IDENTIFIERS, read_metadata
from quire.protocol.openai.schema import Schema, body
from quire.protocol.responses.items import Item, read_items
from quire.protocol.responses.schemas import ITEM

MOST_ADDED = 20
"""Items at a time, as OpenAI has it."""


@dataclass(frozen=True, slots=True)
class ConversationBody:
    """A new conversation, or what an old one is to have from now on."""

    items: list[Item]
    """References among them are still to be looked up."""
    metadata: dict[str, str]


def read_new_conversation(values: object, ignored: Ignored) -> ConversationBody:
    fields = Fields(object_of(values), known=("items", "metadata"), ignored=ignored)
    return ConversationBody(_items(fields), read_metadata(fields))


def read_conversation_update(values: object, ignored: Ignored) -> dict[str, str]:
    """The metadata that take the place of what there was."""
    fields = Fields(object_of(values), known=("metadata",), ignored=ignored)
    if "metadata" not in fields:
        raise refuse("metadata", None, "an object of texts; {} leaves none")
    return read_metadata(fields)


def read_added_items(values: object, ignored: Ignored) -> list[Item]:
    fields = Fields(object_of(values), known=("items",), ignored=ignored)
    if not fields.get("items"):
        raise refuse("items", fields.get("items"), f"a list of 1 to {MOST_ADDED} items")
    return _items(fields)


def _items(fields: Fields) -> list[Item]:
    return read_items(fields, "items", fields.list("items", MOST_ADDED) or [], MOST_ADDED)


_ITEMS: Schema = {"type": "array", "items": ITEM, "maxItems": MOST_ADDED}
NEW_CONVERSATION: Schema = body({"items": {"anyOf": [_ITEMS, {"type": "null"}]}, "metadata": IDENTIFIERS["metadata"]})
UPDATED_CONVERSATION: Schema = body({"metadata": IDENTIFIERS["metadata"]}, required=("metadata",))
ADDED_ITEMS: Schema = body({"items": {**_ITEMS, "minItems": 1}}, required=("items",))
CONVERSATION_ANSWER: Schema = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "conversation"},
        "created_at": {"type": "integer"},
        "metadata": {"type": "object"},
    },
    "required": ["id", "object", "created_at", "metadata"],
}
DELETED_CONVERSATION: Schema = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "object": {"const": "conversation.deleted"}, "deleted": {"const": True}},
    "required": ["id", "object", "deleted"],
}
ITEM_ANSWER: Schema = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "type": {"type": "string"}},
    "required": ["id", "type"],
}
