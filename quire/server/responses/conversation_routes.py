"""OpenAI's Conversations API: begin one, read, change and delete it, and the items in it."""

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from quire.protocol.ignored import Ignored
from quire.protocol.openai.paging import page_body
from quire.protocol.responses import conversation_bodies as bodies
from quire.protocol.responses.items import Item
from quire.protocol.responses.query import read_item_query, read_items_query
from quire.protocol.responses.schemas import ITEMS_ANSWER, ITEMS_QUERY, PAGE_QUERY
from quire.server.body import read_json
from quire.server.caller import Caller
from quire.server.ignored import ignored_header
from quire.server.operation import Operation
from quire.server.responses.conversations import Conversations
from quire.server.responses.history import History
from quire.server.responses.seal import ThinkingSeal

if TYPE_CHECKING:
    from quire.server.serving import Serving

CONVERSATIONS = "/v1/conversations"
_ONE = f"{CONVERSATIONS}/{{conversation_id}}"
_ITEMS = f"{_ONE}/items"
_ITEM = f"{_ITEMS}/{{item_id}}"


async def _begin(request: Request) -> Response:
    ignored = _serving(request).new_ignored()
    body = bodies.read_new_conversation(await read_json(request), ignored)
    told = await _conversations(request).begin(await _whole(request, body.items, ignored), body.metadata)
    return _answer(request, told, ignored)


async def _get(request: Request) -> Response:
    return JSONResponse(await _conversations(request).get(_identity(request)))


async def _update(request: Request) -> Response:
    ignored = _serving(request).new_ignored()
    metadata = bodies.read_conversation_update(await read_json(request), ignored)
    return _answer(request, await _conversations(request).update(_identity(request), metadata), ignored)


async def _delete(request: Request) -> Response:
    identity = _identity(request)
    await _conversations(request).delete(identity)
    return JSONResponse({"id": identity, "object": "conversation.deleted", "deleted": True})


async def _add(request: Request) -> Response:
    ignored = _serving(request).new_ignored()
    read_item_query(request.query_params.multi_items())
    items = await _whole(request, bodies.read_added_items(await read_json(request), ignored), ignored)
    added = await _conversations(request).add(_identity(request), items)
    return _answer(request, page_body(added, has_more=False), ignored)


async def _list(request: Request) -> Response:
    asked = read_items_query(request.query_params.multi_items())
    page = await _conversations(request).page(_identity(request), asked.after, asked.limit, asked.order)
    return JSONResponse(page_body(page.items, page.has_more))


async def _get_item(request: Request) -> Response:
    read_item_query(request.query_params.multi_items())
    return JSONResponse(await _conversations(request).item(_identity(request), request.path_params["item_id"]))


async def _remove(request: Request) -> Response:
    return JSONResponse(await _conversations(request).remove(_identity(request), request.path_params["item_id"]))


async def _whole(request: Request, items: list[Item], ignored: Ignored) -> list[Item]:
    """With stored items in place of references, and sealed thinking opened."""
    store, tenant = _serving(request).store, _caller(request).tenant
    seal = ThinkingSeal(store.secret, tenant)
    return seal.opened(await History(store, tenant).resolved(items, "items"), ignored, "items")


def _answer(request: Request, told: object, ignored: Ignored) -> Response:
    _serving(request).note_ignored(ignored)
    return JSONResponse(told, headers=ignored_header(ignored))


def _conversations(request: Request) -> Conversations:
    return Conversations(_serving(request).store, _caller(request).tenant)


def _serving(request: Request) -> "Serving":
    serving: Serving = request.app.state.serving
    return serving


def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


def _identity(request: Request) -> str:
    identity: str = request.path_params["conversation_id"]
    return identity


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST",
        CONVERSATIONS,
        "Begin a conversation that responses go on with",
        _begin,
        body=bodies.NEW_CONVERSATION,
        answer=bodies.CONVERSATION_ANSWER,
    ),
    Operation("GET", _ONE, "A conversation", _get, answer=bodies.CONVERSATION_ANSWER),
    Operation(
        "POST",
        _ONE,
        "Give a conversation other metadata",
        _update,
        body=bodies.UPDATED_CONVERSATION,
        answer=bodies.CONVERSATION_ANSWER,
    ),
    Operation("DELETE", _ONE, "Delete a conversation", _delete, answer=bodies.DELETED_CONVERSATION),
    Operation(
        "POST",
        _ITEMS,
        "Add items to a conversation",
        _add,
        body=bodies.ADDED_ITEMS,
        answer=ITEMS_ANSWER,
        query=ITEMS_QUERY,
    ),
    Operation("GET", _ITEMS, "What was said in a conversation", _list, answer=ITEMS_ANSWER, query=PAGE_QUERY),
    Operation("GET", _ITEM, "One item of a conversation", _get_item, answer=bodies.ITEM_ANSWER, query=ITEMS_QUERY),
    Operation("DELETE", _ITEM, "Take an item out of a conversation", _remove, answer=bodies.CONVERSATION_ANSWER),
)
