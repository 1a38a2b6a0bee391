"""Anthropic's own client against the routes, over a socket, with a serving that says what it is told to."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import pytest

from quire.core.errors import Overloaded, RequestFailed, Unavailable
from quire.server.anthropic import OPERATIONS
from quire.server.store.store import Store
from tests.server.responses.fake_serving import MODEL, FakeServing, app_of, listening

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
TEXT = "Hello, wörld!"


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
def client(url: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client:
        yield client


def test_message(client: anthropic.Anthropic, serving: FakeServing) -> None:
    serving.cached_tokens = 5
    answer = client.messages.create(model="alias", max_tokens=16, messages=HELLO, system="Be brief.")
    assert [(block.type, getattr(block, "text", None)) for block in answer.content] == [("text", TEXT)]
    assert (answer.model, answer.role, answer.type) == ("alias", "assistant", "message")
    assert (answer.stop_reason, answer.stop_sequence) == ("end_turn", None)
    assert answer.id.startswith("msg_")
    prompt = serving.calls[0].prompts[0]
    assert serving.calls[0].texts == ["<system>Be brief.</><user>Hello</><assistant>"]
    assert answer.usage.input_tokens == len(prompt) - 5
    assert answer.usage.cache_read_input_tokens == 5
    assert answer.usage.cache_creation_input_tokens == 0
    assert answer.usage.output_tokens == 4


def test_prefill_goes_on_with_the_last_message(client: anthropic.Anthropic, serving: FakeServing) -> None:
    messages: list[Any] = [*HELLO, {"role": "assistant", "content": "Well,"}]
    client.messages.create(model=MODEL, max_tokens=16, messages=messages)
    assert serving.calls[0].texts == ["<user>Hello</><assistant>Well,"]


def test_answer_can_be_sent_back(client: anthropic.Anthropic, serving: FakeServing) -> None:
    first = client.messages.create(model=MODEL, max_tokens=16, messages=HELLO)
    messages: list[Any] = [*HELLO, first.to_param(), {"role": "user", "content": "more"}]
    client.messages.create(model=MODEL, max_tokens=16, messages=messages)
    assert serving.calls[1].texts == [f"<user>Hello</><assistant>{TEXT}</><user>more</><assistant>"]


@pytest.mark.parametrize(
    ("finish", "stop", "most", "reason"),
    [
        ("stop", None, 16, "end_turn"),
        ("stop", 7, 16, "end_turn"),
        ("stop", "END", 16, "stop_sequence"),
        ("length", None, 4, "max_tokens"),
        ("length", None, 16, "model_context_window_exceeded"),
        ("deadline", None, 16, "pause_turn"),
    ],
)
def test_reasons_to_stop(
    client: anthropic.Anthropic, serving: FakeServing, finish: Any, stop: Any, most: int, reason: str
) -> None:
    serving.finish_reason, serving.stop_reason = finish, stop
    answer = client.messages.create(model=MODEL, max_tokens=most, messages=HELLO, stop_sequences=["END"])
    assert (answer.stop_reason, answer.stop_sequence) == (reason, stop if isinstance(stop, str) else None)
    with client.messages.stream(model=MODEL, max_tokens=most, messages=HELLO, stop_sequences=["END"]) as stream:
        final = stream.get_final_message()
    assert (final.stop_reason, final.stop_sequence) == (answer.stop_reason, answer.stop_sequence)


def test_stream(client: anthropic.Anthropic, serving: FakeServing) -> None:
    serving.cached_tokens = 3
    with client.messages.stream(model=MODEL, max_tokens=16, messages=HELLO) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    assert pieces == ["Hel", "lo, wörld", "!"]
    whole = client.messages.create(model=MODEL, max_tokens=16, messages=HELLO)
    assert final.model_dump(exclude={"id"}, exclude_none=True) == whole.model_dump(exclude={"id"}, exclude_none=True)
    assert final.usage.cache_read_input_tokens == 3


def test_events_in_anthropics_order(url: str) -> None:
    body = {"model": MODEL, "max_tokens": 16, "messages": HELLO, "stream": True}
    lines = httpx.post(f"{url}/v1/messages", json=body).text.splitlines()
    names = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    deltas = ["content_block_delta"] * 3
    assert names == [
        *("message_start", "content_block_start", "ping", *deltas),
        *("content_block_stop", "message_delta", "message_stop"),
    ]
    assert not any("[DONE]" in line for line in lines)


def test_async_client(url: str, serving: FakeServing) -> None:
    async def scenario() -> None:
        async with anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as client:
            answer = await client.messages.create(model=MODEL, max_tokens=16, messages=HELLO)
            assert answer.stop_reason == "end_turn"
            events = await client.messages.create(model=MODEL, max_tokens=16, messages=HELLO, stream=True)
            kinds = [event.type async for event in events]
            assert kinds[0] == "message_start"
            assert kinds[-1] == "message_stop"
            async with client.messages.stream(model=MODEL, max_tokens=16, messages=HELLO) as stream:
                assert "".join([text async for text in stream.text_stream]) == TEXT

    asyncio.run(scenario())
    assert len(serving.calls) == 3


def test_empty_answer_has_no_block(client: anthropic.Anthropic, serving: FakeServing) -> None:
    serving.pieces = [""]
    assert client.messages.create(model=MODEL, max_tokens=16, messages=HELLO).content == []


def test_counting_tokens_runs_nothing(client: anthropic.Anthropic, serving: FakeServing) -> None:
    counted = client.messages.count_tokens(model=MODEL, messages=HELLO, system="Be brief.")
    text = "<system>Be brief.</><user>Hello</><assistant>"
    assert counted.input_tokens == len(serving.tokenizer.encode(text, add_special_tokens=False))
    assert serving.calls == []


def test_errors_are_the_clients_own_classes(client: anthropic.Anthropic, serving: FakeServing) -> None:
    with pytest.raises(anthropic.BadRequestError, match="max_tokens is 0"):
        client.messages.create(model=MODEL, max_tokens=0, messages=HELLO)
    with pytest.raises(anthropic.NotFoundError, match="not served"):
        client.messages.create(model="other", max_tokens=1, messages=HELLO)
    serving.error = Overloaded("too much", retry_after=1.0)
    with pytest.raises(anthropic.RateLimitError, match="too much"):
        client.messages.create(model=MODEL, max_tokens=1, messages=HELLO)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RequestFailed("broken"), "api_error"),
        (Unavailable("going down"), "overloaded_error"),
        (Overloaded("too much", retry_after=1.0), "rate_limit_error"),
    ],
)
def test_stream_that_breaks_off_says_why(
    client: anthropic.Anthropic, serving: FakeServing, error: Any, kind: str
) -> None:
    serving.error = error
    seen: list[str] = []

    def read() -> None:
        with client.messages.stream(model=MODEL, max_tokens=16, messages=HELLO) as stream:
            seen.extend(stream.text_stream)

    with pytest.raises(anthropic.APIStatusError, match=str(error)) as raised:
        read()
    assert seen == ["Hel"]
    assert isinstance(raised.value.body, dict)
    assert raised.value.body["error"]["type"] == kind


def test_user_of_the_client_is_in_the_log(client: anthropic.Anthropic, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="quire"):
        client.messages.create(model=MODEL, max_tokens=1, messages=HELLO, metadata={"user_id": "u-17"})
    assert "request-1" in caplog.text
    assert "u-17" in caplog.text
