"""Anthropic's Python client against /v1/messages."""

from typing import Any

import anthropic
import pytest
from anthropic import Anthropic

from tests.server.live import LiveServer

QUESTION: list[Any] = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]

GREEDY = {"temperature": 0}
"""The API has the field; this client no longer has a name for it."""


@pytest.fixture(scope="module")
def client(live_server: LiveServer) -> Any:
    with Anthropic(base_url=live_server.url, api_key="none", max_retries=0, timeout=120) as client:
        yield client


def test_a_message(client: Anthropic, live_server: LiveServer) -> None:
    answer = client.messages.create(
        model=live_server.model, messages=QUESTION, max_tokens=12, extra_body=GREEDY, system="You answer briefly."
    )
    assert answer.type == "message"
    assert answer.role == "assistant"
    assert answer.content[0].type == "text"
    assert "Paris" in answer.content[0].text
    assert answer.stop_reason in ("end_turn", "max_tokens")
    assert answer.usage.output_tokens <= 12


def test_a_stream_says_the_same(client: Anthropic, live_server: LiveServer) -> None:
    asked: dict[str, Any] = {"model": live_server.model, "messages": QUESTION, "max_tokens": 12, "extra_body": GREEDY}
    whole = client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert whole.content[0].type == "text"
    assert text == whole.content[0].text
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_stop_sequences(client: Anthropic, live_server: LiveServer) -> None:
    asked: dict[str, Any] = {"model": live_server.model, "messages": QUESTION, "max_tokens": 12, "extra_body": GREEDY}
    answer = client.messages.create(**asked, stop_sequences=["Paris"])
    assert answer.stop_reason == "stop_sequence"
    assert answer.stop_sequence == "Paris"


def test_errors_have_their_classes(client: Anthropic, live_server: LiveServer) -> None:
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(model="no-such-model", messages=QUESTION, max_tokens=4)
    with pytest.raises(anthropic.BadRequestError) as caught:
        client.messages.create(model=live_server.model, messages=QUESTION, max_tokens=4, extra_body={"temperature": -1})
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["type"] == "error"
    assert caught.value.body["error"]["type"] == "invalid_request_error"
