"""Responses that are made in the background: read, followed, cancelled and deleted by OpenAI's own client."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import Response

from quire.core.errors import RequestFailed
from quire.server.responses.background import BackgroundRuns
from quire.server.responses.routes import OPERATIONS
from quire.server.store.store import Store
from tests.server.responses.fake_serving import MODEL, FakeServing, app_of, listening

TEXT = "Hello, wörld!"
ENDED = ("completed", "failed", "cancelled", "incomplete")


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[FakeServing]:
    store = Store(tmp_path)
    yield FakeServing(store)
    store.close()


@pytest.fixture
def url(serving: FakeServing) -> Iterator[str]:
    with listening(app_of(OPERATIONS, serving)) as url:
        yield url
        serving.go_on.set()


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


def begun(client: openai.OpenAI, **fields: Any) -> Response:
    return client.responses.create(model=MODEL, input="Hi", background=True, **fields)


def until(client: openai.OpenAI, identity: str, *statuses: str) -> Response:
    while True:
        found = client.responses.retrieve(identity)
        if found.status in statuses:
            return found
        assert found.status in ("queued", "in_progress")
        time.sleep(0.01)


def test_a_response_is_made_while_nobody_waits(client: openai.OpenAI, serving: FakeServing) -> None:
    serving.go_on.clear()
    first = begun(client)
    assert (first.status, first.background, first.output) == ("queued", True, [])
    running = until(client, first.id, "in_progress")
    assert (running.id, running.usage) == (first.id, None)
    assert serving.drain.running == 1  # a server on its way out waits for it
    serving.go_on.set()
    ended = until(client, first.id, *ENDED)
    assert (ended.status, ended.output_text, ended.background) == ("completed", TEXT, True)
    assert ended.usage is not None
    assert ended.usage.output_tokens == len(serving.pieces)
    assert serving.drain.running == 0
    going_on = client.responses.create(model=MODEL, input="And?", previous_response_id=first.id)
    assert TEXT in (serving.calls[-1].texts[0] or "")
    assert going_on.status == "completed"


def test_one_that_has_not_ended_cannot_be_gone_on_with(client: openai.OpenAI, serving: FakeServing) -> None:
    serving.go_on.clear()
    first = begun(client)
    with pytest.raises(openai.BadRequestError, match="has not ended"):
        client.responses.create(model=MODEL, input="And?", previous_response_id=first.id)


def test_cancel(client: openai.OpenAI, serving: FakeServing) -> None:
    serving.go_on.clear()
    first = begun(client)
    until(client, first.id, "in_progress")
    ended = client.responses.cancel(first.id)
    assert (ended.status, ended.output_text) == ("cancelled", "Hel")
    assert client.responses.cancel(first.id) == ended  # again changes nothing
    assert client.responses.retrieve(first.id) == ended
    assert serving.drain.running == 0


def test_cancel_of_one_that_has_ended(client: openai.OpenAI) -> None:
    ended = until(client, begun(client).id, *ENDED)
    assert client.responses.cancel(ended.id) == ended


def test_a_deleted_one_is_not_made_any_further(client: openai.OpenAI, serving: FakeServing) -> None:
    serving.go_on.clear()
    first = begun(client)
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    assert serving.drain.running == 0


def test_what_goes_wrong_is_told_later(client: openai.OpenAI, serving: FakeServing) -> None:
    serving.error = RequestFailed("the engine was lost")
    ended = until(client, begun(client).id, *ENDED)
    assert ended.status == "failed"
    assert ended.error is not None
    assert "the engine was lost" in ended.error.message


def test_what_is_wrong_with_the_request_is_told_at_once(client: openai.OpenAI, serving: FakeServing) -> None:
    serving.max_model_len = 1
    with pytest.raises(openai.BadRequestError, match="too long"):
        begun(client)
    assert serving.drain.running == 0


def test_followed_from_any_event(client: openai.OpenAI, serving: FakeServing, url: str) -> None:
    serving.go_on.clear()
    with client.responses.create(model=MODEL, input="Hi", background=True, stream=True) as stream:
        seen = [next(stream) for _ in range(3)]  # and the client goes away
    assert [event.type for event in seen] == ["response.created", "response.queued", "response.in_progress"]
    identity = seen[0].response.id  # type: ignore[union-attr]
    until(client, identity, "in_progress")
    with client.responses.retrieve(identity, stream=True, starting_after=seen[-1].sequence_number) as again:
        first = next(again)
        serving.go_on.set()
        rest = [first, *again]
    assert [event.sequence_number for event in rest] == list(range(3, 3 + len(rest)))
    assert "".join(event.delta for event in rest if event.type == "response.output_text.delta") == TEXT
    assert rest[-1].type == "response.completed"
    assert rest[-1].response == until(client, identity, *ENDED)
    refused = httpx.get(f"{url}/v1/responses/{identity}?stream=true")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "stream")


def test_one_begun_without_stream_is_not_followed(client: openai.OpenAI, serving: FakeServing, url: str) -> None:
    serving.go_on.clear()
    assert httpx.get(f"{url}/v1/responses/{begun(client).id}?stream=true").status_code == 400


@pytest.mark.parametrize("query", ["stream=perhaps", "starting_after=1", "stream=true&starting_after=-1", "other=1"])
def test_queries_that_are_refused(url: str, query: str) -> None:
    assert httpx.get(f"{url}/v1/responses/resp_1?{query}").status_code == 400


def test_tenants_do_not_see_each_others(url: str, serving: FakeServing) -> None:
    serving.go_on.clear()
    body = {"model": MODEL, "input": "Hi", "background": True}
    identity = httpx.post(f"{url}/v1/responses", json=body, headers={"x-tenant": "a"}).json()["id"]
    theirs = {"x-tenant": "b"}
    assert httpx.get(f"{url}/v1/responses/{identity}", headers=theirs).status_code == 404
    assert httpx.post(f"{url}/v1/responses/{identity}/cancel", headers=theirs).status_code == 404
    assert httpx.get(f"{url}/v1/responses/{identity}", headers={"x-tenant": "a"}).status_code == 200


def test_one_whose_server_was_stopped_has_failed(client: openai.OpenAI, serving: FakeServing) -> None:
    serving.go_on.clear()
    first = begun(client)
    serving.background = BackgroundRuns(alone=True)  # as after a restart, which knows the store alone
    found = client.responses.retrieve(first.id)
    assert found.status == "failed"
    assert found.error is not None
    assert "stopped" in found.error.message


def test_several_fronts_refuse_it(client: openai.OpenAI, serving: FakeServing) -> None:
    serving.background = BackgroundRuns(alone=False)
    with pytest.raises(openai.BadRequestError, match="--api-server-count 1"):
        begun(client)
