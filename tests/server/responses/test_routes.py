"""OpenAI's own client against the routes, over a socket, with a real store and a serving that says what it is told."""

import asyncio
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from quire.core.errors import Overloaded, RequestFailed
from quire.protocol.responses.body import LOGPROBS
from quire.server.responses.routes import OPERATIONS
from quire.server.store.limits import RESPONSE, StoreLimits
from quire.server.store.store import Store
from tests.server.responses.fake_serving import MODEL, FakeServing, app_of, listening

TEXT = "Hello, wörld!"
NO_SUCH = "resp_" + "0" * 48


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[FakeServing]:
    store = Store(tmp_path)
    yield FakeServing(store)
    store.close()


@pytest.fixture
def url(serving: FakeServing) -> Iterator[str]:
    with listening(app_of(OPERATIONS, serving)) as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


def texts(items: Iterable[Any]) -> list[str]:
    return [item.content[0].text for item in items]


def stored(serving: FakeServing, tenant: str = "default") -> list[dict[str, Any]]:
    return asyncio.run(serving.store.list(RESPONSE, tenant)).documents


def test_response(client: openai.OpenAI, serving: FakeServing) -> None:
    serving.cached_tokens = 2
    answer = client.responses.create(
        model="alias", input="Hi", instructions="Be brief.", max_output_tokens=20, metadata={"k": "v"}, temperature=0.5
    )
    assert answer.output_text == TEXT
    assert (answer.status, answer.model, answer.object, answer.error) == ("completed", "alias", "response", None)
    assert (answer.instructions, answer.max_output_tokens, answer.metadata) == ("Be brief.", 20, {"k": "v"})
    assert (answer.temperature, answer.truncation, answer.tools) == (0.5, "disabled", [])
    assert serving.calls[0].texts == ["<system>Be brief.</><user>Hi</><assistant>"]
    prompt = len(serving.calls[0].prompts[0])
    assert answer.usage is not None
    assert (answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.total_tokens) == (prompt, 4, prompt + 4)
    assert answer.usage.input_tokens_details.cached_tokens == 2


def test_whole_response_is_on_disk_when_it_is_answered(client: openai.OpenAI, tmp_path: Path) -> None:
    """Looked for past the store, which would wait for what it still has to write."""
    database = sqlite3.connect(tmp_path / "store.sqlite")
    for _ in range(5):
        answer = client.responses.create(model=MODEL, input="Hi")
        assert database.execute("SELECT COUNT(*) FROM entries WHERE id = ?", (answer.id,)).fetchone() == (1,)
    client.responses.create(model=MODEL, input="Hi", store=False)
    assert database.execute("SELECT COUNT(*) FROM entries WHERE kind = ?", (RESPONSE,)).fetchone() == (5,)
    database.close()


def test_stored_response_is_read_listed_and_deleted(client: openai.OpenAI) -> None:
    answer = client.responses.create(model=MODEL, input="Hi", instructions="Be brief.")
    assert client.responses.retrieve(answer.id).model_dump() == answer.model_dump()
    assert client.responses.retrieve(answer.id, include=["message.output_text.logprobs"]).id == answer.id
    items = client.responses.input_items.list(answer.id).data
    assert texts(items) == ["Hi"]
    client.responses.delete(answer.id)
    for gone in (client.responses.retrieve, client.responses.delete, client.responses.input_items.list):
        with pytest.raises(openai.NotFoundError, match=r"Response with id .* not found"):
            gone(answer.id)


def test_conversation_goes_on_without_its_old_instructions(client: openai.OpenAI, serving: FakeServing) -> None:
    first = client.responses.create(model=MODEL, input="one", instructions="Be brief.")
    second = client.responses.create(model=MODEL, input="two", previous_response_id=first.id, instructions="Be long.")
    client.responses.delete(first.id)  # what was said is kept by those that went on with it
    third = client.responses.create(model=MODEL, input="three", previous_response_id=second.id)
    said = f"<user>one</><assistant>{TEXT}</><user>two</><assistant>"
    assert serving.calls[1].texts == [f"<system>Be long.</>{said}"]
    assert serving.calls[2].texts == [f"{said}{TEXT}</><user>three</><assistant>"]
    assert third.previous_response_id == second.id
    assert texts(client.responses.input_items.list(third.id, order="asc")) == ["one", TEXT, "two", TEXT, "three"]


def test_items_come_in_pages(client: openai.OpenAI) -> None:
    said: list[Any] = [{"role": "user", "content": str(number)} for number in range(7)]
    answer = client.responses.create(model=MODEL, input=said)
    page = client.responses.input_items.list(answer.id, limit=3)
    assert texts(page.data) == ["6", "5", "4"]
    assert page.has_more
    assert texts(client.responses.input_items.list(answer.id, limit=3)) == list("6543210")
    assert not client.responses.input_items.list(answer.id, limit=7).has_more
    last = client.responses.input_items.list(answer.id, limit=3, order="asc", after=page.data[2].id)
    assert texts(last.data) == ["5", "6"]
    assert not last.has_more


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("?stream=true", "stream"),
        ("?starting_after=3", "starting_after"),
        ("/input_items?limit=0", "limit"),
        ("/input_items?limit=101", "limit"),
        ("/input_items?order=up", "order"),
        ("/input_items?after=msg_0", "after"),
        ("/input_items?before=msg_0", "before"),
    ],
)
def test_queries_are_honoured_or_refused(url: str, path: str, field: str) -> None:
    identity = httpx.post(f"{url}/v1/responses", json={"input": "Hi"}).json()["id"]
    answer = httpx.get(f"{url}/v1/responses/{identity}{path}")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == field


def test_tenants_never_reach_each_others_responses(client: openai.OpenAI, serving: FakeServing) -> None:
    answer = client.responses.create(model=MODEL, input="mine")
    other = client.with_options(default_headers={"x-tenant": "other"})
    for reach in (
        other.responses.retrieve,
        other.responses.delete,
        other.responses.input_items.list,
        other.responses.cancel,
    ):
        with pytest.raises(openai.NotFoundError):
            reach(answer.id)
    with pytest.raises(openai.BadRequestError, match="no stored response") as refused:
        other.responses.create(model=MODEL, input="x", previous_response_id=answer.id)
    assert refused.value.param == "previous_response_id"
    assert client.responses.retrieve(answer.id).output_text == TEXT
    assert len(serving.calls) == 1


@pytest.mark.parametrize("identity", [NO_SUCH, "..%2F..%2Fetc", "x", "resp_" + "f" * 3000])
def test_ids_that_are_none(url: str, identity: str) -> None:
    assert httpx.get(f"{url}/v1/responses/{identity}").status_code == 404
    assert httpx.delete(f"{url}/v1/responses/{identity}").status_code == 404
    body = {"input": "x", "previous_response_id": identity}
    assert httpx.post(f"{url}/v1/responses", json=body).status_code == 400


def test_cancel_is_for_the_background(client: openai.OpenAI) -> None:
    answer = client.responses.create(model=MODEL, input="Hi")
    with pytest.raises(openai.BadRequestError, match="background"):
        client.responses.cancel(answer.id)
    assert client.responses.retrieve(answer.id).status == "completed"


@pytest.mark.parametrize(
    ("finish", "status", "reason"),
    [
        ("stop", "completed", None),
        ("length", "incomplete", "max_output_tokens"),
        ("deadline", "incomplete", "deadline"),
    ],
)
def test_ends(client: openai.OpenAI, serving: FakeServing, finish: Any, status: str, reason: str | None) -> None:
    serving.finish_reason = finish
    answer = client.responses.create(model=MODEL, input="Hi")
    assert answer.status == status
    assert (answer.incomplete_details and answer.incomplete_details.reason) == reason
    assert client.responses.retrieve(answer.id).status == status
    with client.responses.stream(model=MODEL, input="Hi") as stream:
        last = list(stream)[-1]
    assert last.type == f"response.{status}"


def test_stream_helper(client: openai.OpenAI, serving: FakeServing) -> None:
    with client.responses.stream(model=MODEL, input="Hi") as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert [event.type for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * 3,
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.delta for event in events if event.type == "response.output_text.delta"] == ["Hel", "lo, wörld", "!"]
    items: list[Any] = list(final.output)
    assert final.output_text == TEXT
    assert {event.item_id for event in events if event.type == "response.output_text.delta"} == {items[0].id}
    assert serving.calls[0].stream


def test_streamed_response_is_there_for_whoever_saw_its_end(client: openai.OpenAI, serving: FakeServing) -> None:
    """Each turn goes on with one whose last event has just come: it is found, though nobody waited for the disk."""
    previous: str | None = None
    for turn in range(10):
        serving.finish_reason = "length" if turn % 2 else "stop"
        events = client.responses.create(model=MODEL, input=str(turn), previous_response_id=previous, stream=True)
        last = list(events)[-1]
        assert last.type in ("response.completed", "response.incomplete")
        previous = last.response.id
        assert client.responses.retrieve(previous).model_dump() == last.response.model_dump()
    assert serving.calls[-1].texts[0] == "".join(f"<user>{turn}</><assistant>{TEXT}</>" for turn in range(9)) + (
        "<user>9</><assistant>"
    )


def test_streams_that_are_not_to_be_stored_are_not(client: openai.OpenAI, serving: FakeServing) -> None:
    list(client.responses.create(model=MODEL, input="Hi", stream=True, store=False))
    assert stored(serving) == []


def test_stream_that_fails_says_so_and_is_kept_as_failed(client: openai.OpenAI, serving: FakeServing) -> None:
    serving.error = RequestFailed("the engine broke")
    events = list(client.responses.create(model=MODEL, input="Hi", stream=True))
    last = events[-1]
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert (last.response.error.code, last.response.status) == ("server_error", "failed")
    assert "the engine broke" in last.response.error.message
    serving.error = None
    assert client.responses.retrieve(last.response.id).status == "failed"
    client.responses.create(model=MODEL, input="again", previous_response_id=last.response.id)
    assert serving.calls[-1].texts == ["<user>Hi</><user>again</><assistant>"]


def test_async_client(url: str) -> None:
    async def scenario() -> None:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            answer = await client.responses.create(model=MODEL, input="Hi")
            async with client.responses.stream(model=MODEL, input="more", previous_response_id=answer.id) as stream:
                pieces = [event.delta async for event in stream if event.type == "response.output_text.delta"]
            assert "".join(pieces) == TEXT == (await client.responses.retrieve(answer.id)).output_text

    asyncio.run(scenario())


def test_logprobs(client: openai.OpenAI, serving: FakeServing) -> None:
    def told(response: Any) -> list[tuple[str, float, list[str]]]:
        entries = response.output[0].content[0].logprobs
        return [(entry.token, entry.logprob, [top.token for top in entry.top_logprobs]) for entry in entries or []]

    asked: dict[str, Any] = {"model": MODEL, "input": "Hi", "top_logprobs": 1, "include": [LOGPROBS]}
    whole = client.responses.create(**asked)
    assert told(whole) == [(piece, -1.0, ["first"]) for piece in serving.pieces]
    with client.responses.stream(**asked) as stream:
        deltas = [event for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert told(final) == told(whole)
    # the token without a text of its own is told with the text it became part of
    assert [[entry.token for entry in event.logprobs] for event in deltas] == [["Hel"], ["", "lo, wörld"], ["!"]]
    assert told(client.responses.create(**(asked | {"top_logprobs": 3})))[0][2] == ["first", "Hel", "third"]
    assert told(client.responses.create(model=MODEL, input="Hi")) == []


@pytest.mark.parametrize("context", [120, 160, 200, 240, 280, 320])
def test_too_long_input_is_refused_or_loses_its_oldest_turns(
    client: openai.OpenAI, serving: FakeServing, context: int
) -> None:
    serving.max_model_len = context
    room = context - context // 4
    said: list[Any] = [{"role": "system", "content": "Be brief."}]
    for number in range(30):
        said += [{"role": "user", "content": f"question {number}"}, {"role": "assistant", "content": f"ok {number}"}]
    said.append({"role": "user", "content": "the last"})
    with pytest.raises(openai.BadRequestError, match="tokens") as refused:
        client.responses.create(model=MODEL, input=said)
    assert refused.value.code == "context_length_exceeded"
    answer = client.responses.create(model=MODEL, input=said, truncation="auto")
    text, prompt = serving.calls[-1].texts[0], serving.calls[-1].prompts[0]
    assert text is not None
    assert text.startswith("<system>Be brief.</><user>question ")
    assert text.endswith("<user>the last</><assistant>")
    assert len(prompt) <= room
    kept = text.count("question")
    one_more = text.replace("<user>", f"<user>question {29 - kept}</><assistant>ok {29 - kept}</><user>", 1)
    assert len(serving.tokenizer.encode(one_more, add_special_tokens=False)) > room  # no more was dropped than needed
    assert len(list(client.responses.input_items.list(answer.id))) == len(said)  # but all is kept


def test_last_turn_that_does_not_fit_is_the_engines_to_refuse(client: openai.OpenAI, serving: FakeServing) -> None:
    serving.max_model_len = 100
    said: list[Any] = [{"role": "user", "content": word} for word in ("a", "b", "long " * 300)]
    with pytest.raises(openai.BadRequestError, match="tokens"):
        client.responses.create(model=MODEL, input=said, truncation="auto")
    assert serving.calls[-1].texts == [f"<user>{'long ' * 300}</><assistant>"]


def test_errors_are_the_clients_own_classes(client: openai.OpenAI, serving: FakeServing) -> None:
    with pytest.raises(openai.BadRequestError, match="max_output_tokens is 0") as refused:
        client.responses.create(model=MODEL, input="Hi", max_output_tokens=0)
    assert refused.value.param == "max_output_tokens"
    with pytest.raises(openai.NotFoundError, match="not served"):
        client.responses.create(model="other", input="Hi")
    serving.error = Overloaded("too much", retry_after=1.0)
    with pytest.raises(openai.RateLimitError):
        client.responses.create(model=MODEL, input="Hi")


def test_full_disk_is_told_before_anything_runs(tmp_path: Path) -> None:
    store = Store(tmp_path, StoreLimits(free_bytes=1 << 62))
    serving = FakeServing(store)
    with (
        listening(app_of(OPERATIONS, serving)) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        with pytest.raises(openai.InternalServerError, match="disk is full"):
            client.responses.create(model=MODEL, input="Hi")
        assert serving.calls == []
        assert client.responses.create(model=MODEL, input="Hi", store=False).output_text == TEXT
    store.close()
