"""OpenAI's own client keeps conversations with the routes, over a socket, in a real store."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from quire.core.errors import RequestFailed
from quire.protocol.openai.messages import MOST_MESSAGES
from quire.server.responses.conversation_routes import OPERATIONS as CONVERSATIONS
from quire.server.responses.conversations import Conversations
from quire.server.responses.routes import OPERATIONS as RESPONSES
from quire.server.store.store import Store
from tests.server.responses.fake_serving import MODEL, FakeServing, app_of, listening

TEXT = "Hello, wörld!"
NO_SUCH = "conv_" + "0" * 48
OF_AN_ITEM = {"type": "message", "role": "user", "content": "one"}


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[FakeServing]:
    store = Store(tmp_path)
    yield FakeServing(store)
    store.close()


@pytest.fixture
def url(serving: FakeServing) -> Iterator[str]:
    with listening(app_of((*RESPONSES, *CONVERSATIONS), serving)) as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


def said(client: openai.OpenAI, conversation: str) -> list[str]:
    items: list[Any] = list(client.conversations.items.list(conversation, order="asc"))
    return [item.content[0].text for item in items]


def test_a_conversation_is_begun_changed_and_deleted(client: openai.OpenAI) -> None:
    begun = client.conversations.create(metadata={"topic": "demo"}, items=[OF_AN_ITEM])  # type: ignore[list-item]
    assert begun.id.startswith("conv_")
    assert (begun.object, begun.metadata) == ("conversation", {"topic": "demo"})
    assert client.conversations.retrieve(begun.id) == begun
    changed = client.conversations.update(begun.id, metadata={"topic": "other"})
    assert changed.metadata == {"topic": "other"}
    assert changed.created_at == begun.created_at
    assert client.conversations.retrieve(begun.id) == changed
    assert said(client, begun.id) == ["one"]
    gone = client.conversations.delete(begun.id)
    assert (gone.id, gone.object, gone.deleted) == (begun.id, "conversation.deleted", True)
    for reach in (client.conversations.retrieve, client.conversations.delete, client.conversations.items.list):
        with pytest.raises(openai.NotFoundError, match=r"Conversation with id .* not found"):
            reach(begun.id)
    assert client.conversations.create().metadata == {}


def test_items_are_added_read_and_taken_out(client: openai.OpenAI) -> None:
    conversation = client.conversations.create().id
    added = client.conversations.items.create(conversation, items=[OF_AN_ITEM, {**OF_AN_ITEM, "content": "two"}])  # type: ignore[list-item]
    first, second = added.data
    assert (added.first_id, added.last_id, added.has_more) == (first.id, second.id, False)
    again = client.conversations.items.create(conversation, items=[{**OF_AN_ITEM, "id": first.id}])  # type: ignore[list-item]
    assert again.data[0].id not in (first.id, second.id), "ids tell the items of a conversation apart"
    assert client.conversations.items.retrieve(second.id, conversation_id=conversation) == second
    newest = client.conversations.items.list(conversation, limit=1)
    assert ([item.id for item in newest.data], newest.has_more) == ([again.data[0].id], True)
    assert [item.id for item in newest] == [again.data[0].id, second.id, first.id], "the client turns the pages"
    left = client.conversations.items.delete(first.id, conversation_id=conversation)
    assert left.id == conversation
    assert said(client, conversation) == ["two", "one"]
    for reach in (client.conversations.items.retrieve, client.conversations.items.delete):
        with pytest.raises(openai.NotFoundError, match=r"Item with id .* not found"):
            reach(first.id, conversation_id=conversation)


def test_what_is_left_out_adds_nothing(client: openai.OpenAI, serving: FakeServing) -> None:
    conversation = client.conversations.create(items=[OF_AN_ITEM]).id  # type: ignore[list-item]
    searched: Any = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    assert client.conversations.items.create(conversation, items=[searched]).data == []
    assert serving.ignored == ["items[].web_search_call"]
    assert said(client, conversation) == ["one"]


@pytest.mark.parametrize("as_object", [False, True])
@pytest.mark.parametrize("store", [False, True])
def test_responses_go_on_with_it_and_become_part_of_it(
    client: openai.OpenAI, serving: FakeServing, as_object: bool, store: bool
) -> None:
    identity = client.conversations.create(items=[{**OF_AN_ITEM, "role": "system", "content": "Be brief."}]).id  # type: ignore[list-item]
    named: Any = {"id": identity} if as_object else identity
    first = client.responses.create(model=MODEL, input="one", conversation=named, store=store)
    assert first.conversation is not None
    assert first.conversation.id == identity
    with client.responses.stream(model=MODEL, input="two", conversation=named, store=store) as stream:
        second = stream.get_final_response()
    spoken = f"<system>Be brief.</><user>one</><assistant>{TEXT}</><user>two</><assistant>"
    assert serving.calls[1].texts == [spoken]
    assert said(client, identity) == ["Be brief.", "one", TEXT, "two", TEXT]
    newest = client.conversations.items.list(identity, limit=1).data[0]
    assert newest.id == second.output[0].id
    if store:
        read: list[Any] = list(client.responses.input_items.list(second.id, order="asc"))
        assert [item.content[0].text for item in read] == ["Be brief.", "one", TEXT, "two"]


def test_what_failed_does_not_become_part_of_it(client: openai.OpenAI, serving: FakeServing) -> None:
    conversation = client.conversations.create().id
    serving.error = RequestFailed("the engine was lost")
    with client.responses.stream(model=MODEL, input="one", conversation=conversation) as stream:
        assert [event.type for event in stream][-1] == "response.failed"
    serving.error = None
    asyncio.run(serving.store.flush())
    assert said(client, conversation) == []


def test_it_may_be_deleted_while_it_is_answered(client: openai.OpenAI) -> None:
    conversation = client.conversations.create().id
    with client.responses.stream(model=MODEL, input="one", conversation=conversation) as stream:
        next(iter(stream))
        client.conversations.delete(conversation)
        assert stream.get_final_response().status == "completed"
    with pytest.raises(openai.BadRequestError, match="there is no conversation") as refused:
        client.responses.create(model=MODEL, input="two", conversation=conversation)
    assert refused.value.param == "conversation"


def test_two_that_end_at_once_lose_nothing(tmp_path: Path) -> None:
    one, other = Store(tmp_path), Store(tmp_path)  # as two fronts have them

    async def run() -> list[str]:
        conversations = [Conversations(store, "t") for store in (one, other)]
        identity = (await conversations[0].begin([], {}))["id"]
        for place in range(40):
            answer = {"status": "completed", "output": [{"id": f"msg_{place:032}", "text": str(place)}]}
            conversations[place % 2].keep_soon(identity, [], answer)
        await asyncio.gather(one.flush(), other.flush())
        page = await conversations[0].page(identity, None, 100, "asc")
        return [item["text"] for item in page.items]

    found = asyncio.run(run())
    one.close()
    other.close()
    assert sorted(found, key=int) == [str(place) for place in range(40)]


def test_tenants_never_reach_each_others(client: openai.OpenAI) -> None:
    conversation = client.conversations.create(items=[OF_AN_ITEM]).id  # type: ignore[list-item]
    other = client.with_options(default_headers={"x-tenant": "other"})
    for reach in (other.conversations.retrieve, other.conversations.delete, other.conversations.items.list):
        with pytest.raises(openai.NotFoundError):
            reach(conversation)
    with pytest.raises(openai.NotFoundError):
        other.conversations.items.create(conversation, items=[OF_AN_ITEM])  # type: ignore[list-item]
    with pytest.raises(openai.BadRequestError, match="there is no conversation"):
        other.responses.create(model=MODEL, input="x", conversation=conversation)
    assert said(client, conversation) == ["one"]


@pytest.mark.parametrize("identity", [NO_SUCH, "..%2F..%2Fetc", "x", "conv_" + "f" * 3000])
def test_ids_that_are_none(url: str, identity: str) -> None:
    assert httpx.get(f"{url}/v1/conversations/{identity}").status_code == 404
    assert httpx.post(f"{url}/v1/conversations/{identity}/items", json={"items": [OF_AN_ITEM]}).status_code == 404
    assert httpx.post(f"{url}/v1/responses", json={"input": "x", "conversation": identity}).status_code == 400


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("conversations", {"items": [OF_AN_ITEM] * 21}, "items"),
        ("conversations", {"items": [{"type": "hologram"}]}, "items"),
        ("conversations", {"items": "one"}, "items"),
        (f"conversations/{NO_SUCH}/items", {"items": []}, "items"),
        (f"conversations/{NO_SUCH}/items", {}, "items"),
        (f"conversations/{NO_SUCH}", {}, "metadata"),
        ("responses", {"input": "x", "conversation": 5}, "conversation"),
        ("responses", {"input": "x", "conversation": {}}, "conversation"),
        ("responses", {"input": "x", "conversation": NO_SUCH, "previous_response_id": "resp_1"}, "conversation"),
    ],
)
def test_what_is_refused(url: str, path: str, body: dict[str, Any], field: str) -> None:
    answer = httpx.post(f"{url}/v1/{path}", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == field


def test_a_full_one_takes_no_more(client: openai.OpenAI, serving: FakeServing) -> None:
    conversations = Conversations(serving.store, "default")
    items = [{"id": f"msg_{place:032}", **OF_AN_ITEM} for place in range(MOST_MESSAGES)]
    identity = asyncio.run(conversations.begin(items, {}))["id"]
    for reach in (
        lambda: client.responses.create(model=MODEL, input="x", conversation=identity),
        lambda: client.conversations.items.create(identity, items=[OF_AN_ITEM]),  # type: ignore[list-item]
    ):
        with pytest.raises(openai.BadRequestError, match=f"{MOST_MESSAGES} items"):
            reach()
    assert not serving.calls
