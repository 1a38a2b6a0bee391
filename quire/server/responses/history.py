"""Stored responses: each with all that was said before it, so that going on with one is a single read.

A link to the response before would be smaller, but a conversation would break when its oldest turn makes room.
"""

from dataclasses import dataclass

from quire.core.errors import InvalidRequest
from quire.protocol.responses.items import REFERENCE, Item
from quire.protocol.writer import Body
from quire.server.errors import NotFound
from quire.server.responses.background import UNFINISHED
from quire.server.store.limits import ITEM, RESPONSE
from quire.server.store.store import Order, Store


@dataclass(frozen=True, slots=True)
class ItemPage:
    """A piece of the list of items."""

    items: list[Item]
    has_more: bool


def page_of(items: list[Item], after: str | None, limit: int, order: Order, *, of: str) -> ItemPage:
    """At most `limit` of the items, from behind the one called `after`; `of` is the word for what has them."""
    if order == "desc":
        items = items[::-1]
    start = 0
    if after is not None:
        start = 1 + next((place for place, item in enumerate(items) if item["id"] == after), -1)
        if start == 0:
            raise InvalidRequest(f"after is {after[:80]!r}, and the {of} has no such item", field="after")
    return ItemPage(items[start : start + limit], has_more=len(items) > start + limit)


class History:
    """The stored responses of one tenant."""

    def __init__(self, store: Store, tenant: str) -> None:
        self._store = store
        self._tenant = tenant

    async def before(self, previous: str | None) -> list[Item]:
        """All that was said up to and with the response called `previous`."""
        if previous is None:
            return []
        stored = await self._store.get(RESPONSE, self._tenant, previous)
        if stored is None:
            raise InvalidRequest(
                f"there is no stored response {previous!r}; it may have been deleted, have made room for newer ones, "
                "or been created with store set to false.",
                field="previous_response_id",
            )
        if stored["response"]["status"] in UNFINISHED:
            raise InvalidRequest(
                f"the response {previous!r} has not ended, and only one that has can be gone on with.",
                field="previous_response_id",
            )
        items: list[Item] = [*stored["items"], *stored["response"]["output"]]
        return items

    async def resolved(self, items: list[Item], field: str = "input") -> list[Item]:
        """The items of a body's `field`, with those of stored responses in place of what only refers to them."""
        return [await self._referred(item["id"], field) if item["type"] == REFERENCE else item for item in items]

    def keep(self, items: list[Item], response: Body) -> None:
        """Store a response and the items it answers, without waiting for the disk."""
        document = {"response": response, "items": items}
        self._store.put_soon(RESPONSE, self._tenant, response["id"], document)
        for item in response["output"]:
            self._store.put_soon(ITEM, self._tenant, item["id"], {"response": response["id"]})

    async def get(self, identity: str) -> Body:
        """As it ended; one that nobody makes any more has failed."""
        response: Body = (await self._stored(identity))["response"]
        if response["status"] in UNFINISHED:
            error = {"code": "server_error", "message": "the server was stopped while it made this response"}
            return response | {"status": "failed", "error": error}
        return response

    async def delete(self, identity: str) -> None:
        if not await self._store.delete(RESPONSE, self._tenant, identity):
            raise _not_found(identity)

    async def input_items(self, identity: str, after: str | None, limit: int, order: Order) -> ItemPage:
        """What a response answers, all that was said before it included."""
        return page_of((await self._stored(identity))["items"], after, limit, order, of="response")

    async def _referred(self, identity: str, field: str) -> Item:
        """The item goes with its response: what is kept of it is where it is."""
        place = await self._store.get(ITEM, self._tenant, identity)
        stored = None if place is None else await self._store.get(RESPONSE, self._tenant, place["response"])
        output: list[Item] = [] if stored is None else stored["response"]["output"]
        found = next((item for item in output if item["id"] == identity), None)
        if found is None:
            raise InvalidRequest(
                f"there is no stored item {identity[:80]!r}; it may have been deleted, have made room for newer ones, "
                "or belong to a response that was created with store set to false. Send the item itself.",
                field=field,
            )
        return found

    async def _stored(self, identity: str) -> Body:
        found = await self._store.get(RESPONSE, self._tenant, identity)
        if found is None:
            raise _not_found(identity)
        return found


def _not_found(identity: str) -> NotFound:
    """In OpenAI's words, which clients look for."""
    return NotFound(f"Response with id {identity[:80]!r} not found. It may have been deleted or made room for others.")
