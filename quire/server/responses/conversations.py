"""Stored conversations: items in their order, which clients add to and responses go on with.

One document holds all of a conversation: whatever goes on with it reads all of it. It is changed in place by the store,
so that two fronts, or two responses that end at once, lose nothing of each other's.
"""

import time
from collections.abc import Sequence

from quire.core.errors import InvalidRequest
from quire.protocol.ids import new_id
from quire.protocol.openai.messages import MOST_MESSAGES
from quire.protocol.responses.items import Item
from quire.protocol.writer import Body
from quire.server.errors import NotFound
from quire.server.responses.history import ItemPage, page_of
from quire.server.store.limits import CONVERSATION
from quire.server.store.store import Change, Document, Order, Store

_ENDED_WELL = ("completed", "incomplete")


class Conversations:
    """Those of one tenant."""

    def __init__(self, store: Store, tenant: str) -> None:
        self._store = store
        self._tenant = tenant

    async def begin(self, items: list[Item], metadata: dict[str, str]) -> Body:
        """A new one."""
        told: Body = {
            "id": new_id("conv_"),
            "object": "conversation",
            "created_at": int(time.time()),
            "metadata": metadata,
        }
        await self._store.put(CONVERSATION, self._tenant, told["id"], {"conversation": told, "items": items})
        return told

    async def get(self, identity: str) -> Body:
        told: Body = (await self._stored(identity))["conversation"]
        return told

    async def update(self, identity: str, metadata: dict[str, str]) -> Body:
        def change(document: Document) -> Document:
            return {**document, "conversation": document["conversation"] | {"metadata": metadata}}

        told: Body = (await self._changed(identity, change))["conversation"]
        return told

    async def delete(self, identity: str) -> None:
        if not await self._store.delete(CONVERSATION, self._tenant, identity):
            raise _not_found(identity)

    async def before(self, identity: str | None) -> list[Item]:
        """All that was said in the one that a response goes on with."""
        if identity is None:
            return []
        stored = await self._store.get(CONVERSATION, self._tenant, identity)
        if stored is None:
            raise InvalidRequest(
                f"there is no conversation {identity[:80]!r}; it may have been deleted. POST /v1/conversations begins "
                "one.",
                field="conversation",
            )
        items: list[Item] = stored["items"]
        _check_room(identity, len(items), 1)
        return items

    def keep_soon(self, identity: str, items: Sequence[Item], response: Body) -> None:
        """Add what was asked and answered, without waiting for the disk, once a response has ended well."""
        if response["status"] in _ENDED_WELL:
            said = [*items, *response["output"]]
            self._store.change_soon(CONVERSATION, self._tenant, identity, lambda document: _with(document, said))

    async def add(self, identity: str, items: list[Item]) -> list[Item]:
        """The items as they were added."""

        def change(document: Document) -> Document:
            _check_room(identity, len(document["items"]), len(items))
            return _with(document, items)

        now: list[Item] = (await self._changed(identity, change))["items"]
        return now[len(now) - len(items) :]

    async def item(self, identity: str, item: str) -> Item:
        items: list[Item] = (await self._stored(identity))["items"]
        found = next((each for each in items if each["id"] == item), None)
        if found is None:
            raise _no_item(identity, item)
        return found

    async def page(self, identity: str, after: str | None, limit: int, order: Order) -> ItemPage:
        return page_of((await self._stored(identity))["items"], after, limit, order, of="conversation")

    async def remove(self, identity: str, item: str) -> Body:
        """The conversation without it."""

        def change(document: Document) -> Document:
            left = [each for each in document["items"] if each["id"] != item]
            if len(left) == len(document["items"]):
                raise _no_item(identity, item)
            return {**document, "items": left}

        left: Body = (await self._changed(identity, change))["conversation"]
        return left

    async def _changed(self, identity: str, change: Change) -> Document:
        after: list[Document] = []

        def remembered(document: Document) -> Document:
            after.append(change(document))
            return after[0]

        if not await self._store.change(CONVERSATION, self._tenant, identity, remembered):
            raise _not_found(identity)
        return after[0]

    async def _stored(self, identity: str) -> Document:
        found = await self._store.get(CONVERSATION, self._tenant, identity)
        if found is None:
            raise _not_found(identity)
        return found


def _with(document: Document, items: Sequence[Item]) -> Document:
    """Ids tell the items of a conversation apart: one that is there already is given anew."""
    taken = {each["id"] for each in document["items"]}
    added = [each | {"id": new_id(_prefix(each))} if each["id"] in taken else each for each in items]
    return {**document, "items": [*document["items"], *added]}


def _prefix(item: Item) -> str:
    return str(item["id"]).partition("_")[0] + "_"


def _check_room(identity: str, held: int, added: int) -> None:
    if held + added > MOST_MESSAGES:
        raise InvalidRequest(
            f"the conversation {identity} has {held} items, and one may have {MOST_MESSAGES}; delete some, or begin "
            "another.",
            field="conversation",
        )


def _not_found(identity: str) -> NotFound:
    """In OpenAI's words, which clients look for."""
    return NotFound(f"Conversation with id {identity[:80]!r} not found. It may have been deleted.")


def _no_item(identity: str, item: str) -> NotFound:
    return NotFound(f"Item with id {item[:80]!r} not found in conversation {identity[:80]!r}.")
