"""Answers in frames, cut off at any frame and gone on with: what a client reads is what it would have read of one."""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from quire.protocol.journal import (
    JOURNAL_HEADER,
    RESUME_HEADER,
    AnswerIdentity,
    FrameReader,
    Note,
    Progress,
    Resumption,
    encode_resumption,
)
from tests.server.live import LiveServer

CHAT, COMPLETIONS, RESPONSES, MESSAGES = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
)
ASKED = [{"role": "user", "content": "Tell me a story about a fox."}]
Frames = list[tuple[Note, bytes]]


@pytest.fixture(scope="module")
def client(live_server: LiveServer) -> Iterator[httpx.Client]:
    with live_server.client() as client:
        yield client


def frames_of(client: httpx.Client, path: str, body: dict[str, Any], record: bytes = b"") -> tuple[str, Frames]:
    """The kind of the answer, and its frames."""
    headers = {JOURNAL_HEADER: "1", "content-type": "application/json"}
    if record:
        headers[RESUME_HEADER] = str(len(record))
    response = client.post(path, content=record + json.dumps(body).encode(), headers=headers)
    assert response.status_code == 200, response.text
    reader = FrameReader()
    frames = list(reader.feed(response.content))
    assert reader.is_between_frames
    return response.headers[JOURNAL_HEADER], frames


def record_of(frames: Frames) -> bytes:
    """What a router would have noted of them."""
    identity = frames[0][0].identity
    assert identity is not None
    said: dict[tuple[int, int], Progress] = {}
    for note, _ in frames:
        for news in note.news:
            before = said.get((news.prompt, news.index), Progress(news.prompt, news.index, []))
            said[news.prompt, news.index] = Progress(
                news.prompt, news.index, before.tokens + news.tokens, news.end or before.end
            )
    return encode_resumption(Resumption(identity, list(said.values())))


def payload(frames: Frames) -> bytes:
    return b"".join(part for _, part in frames)


def said(path: str, streamed: bytes) -> Any:
    """The events of a stream, without what is different in any two answers: how they are cut into pieces, and times."""
    texts: dict[Any, str] = {}
    last: Any = None
    ids = set(re.findall(rb'"(?:id|item_id|response_id)":"([^"]+)"', streamed))
    for line in streamed.decode().splitlines():
        if not line.startswith("data: ") or line == "data: [DONE]":
            continue
        event = json.loads(line.removeprefix("data: "))
        for choice in event.get("choices", ()):
            delta = choice.get("text", choice.get("delta", {}).get("content")) or ""
            texts[choice["index"]] = texts.get(choice["index"], "") + delta + (choice["finish_reason"] or "")
        if isinstance(event.get("delta"), str):
            texts[event["type"]] = texts.get(event["type"], "") + event["delta"]
        elif isinstance(event.get("delta"), dict) and "text" in event["delta"]:
            texts[event["type"]] = texts.get(event["type"], "") + event["delta"]["text"]
        last = event.get("usage"), event.get("response", {}).get("output"), event.get("type")
    return texts, last, ids


STREAMS: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"messages": ASKED, "max_tokens": 24, "temperature": 0.8}),
    (CHAT, {"messages": ASKED, "max_tokens": 24, "logprobs": True, "top_logprobs": 2, "seed": 5}),
    (CHAT, {"messages": ASKED, "max_tokens": 12, "n": 2, "temperature": 1.0, "stop": ["the"]}),
    (COMPLETIONS, {"prompt": ["A fox", "A bear"], "max_tokens": 12, "temperature": 1.0}),
    (RESPONSES, {"input": "Tell me of foxes.", "max_output_tokens": 16, "store": False}),
    (MESSAGES, {"model": "smollm2", "messages": ASKED, "max_tokens": 16}),
]


@pytest.mark.parametrize(("path", "body"), STREAMS, ids=[f"{path}-{place}" for place, (path, _) in enumerate(STREAMS)])
def test_a_stream_goes_on_as_it_would_have_gone(client: httpx.Client, path: str, body: dict[str, Any]) -> None:
    kind, whole = frames_of(client, path, body | {"stream": True})
    assert kind == "stream"
    for cut in (1, 2, len(whole) // 2, len(whole) - 1):
        had = whole[:cut]
        _, rest = frames_of(client, path, body | {"stream": True}, record_of(had))
        assert said(path, payload(had) + payload(rest)) == said(path, payload(whole)), f"cut behind {cut} frames"


def test_frames_carry_what_an_unframed_answer_is(client: httpx.Client) -> None:
    body = {"messages": ASKED, "max_tokens": 12, "temperature": 0, "stream": True}
    _, frames = frames_of(client, CHAT, body)
    plain = client.post(CHAT, json=body).content
    assert said(CHAT, payload(frames))[0] == said(CHAT, plain)[0]


def tokens_told(frames: Frames) -> int:
    return sum(len(news.tokens) for note, _ in frames for news in note.news)


@pytest.mark.parametrize("cut", [1, 3, 8])
def test_a_whole_answer_goes_on(client: httpx.Client, cut: int) -> None:
    body = {"messages": ASKED, "max_tokens": 16, "temperature": 1.0}
    kind, frames = frames_of(client, CHAT, body)
    assert kind == "whole"
    assert [part for _, part in frames[:-1]] == [b""] * (len(frames) - 1)
    assert frames[-1][0].status == 200
    _, again = frames_of(client, CHAT, body, record_of(frames[:cut]))
    first, second = json.loads(frames[-1][1]), json.loads(again[-1][1])
    assert first["choices"] == second["choices"]
    assert (first["id"], first["created"]) == (second["id"], second["created"])
    assert first["usage"]["completion_tokens"] == second["usage"]["completion_tokens"]
    # what the client has is not computed again, let alone told again; how many tokens a frame has is up to the machine
    assert tokens_told(again) == tokens_told(frames) - tokens_told(frames[:cut])


def test_a_call_keeps_its_schema(client: httpx.Client) -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}}, "required": ["name"]}
    form = {"type": "json_schema", "json_schema": {"name": "fox", "strict": True, "schema": schema}}
    body = {"messages": ASKED, "max_tokens": 32, "temperature": 1.0, "stream": True, "response_format": form}
    _, frames = frames_of(client, CHAT, body)
    had = frames[:4]
    _, rest = frames_of(client, CHAT, body, record_of(had))
    assert said(CHAT, payload(had) + payload(rest)) == said(CHAT, payload(frames))


def test_an_answer_that_needs_its_server_has_no_identity(client: httpx.Client) -> None:
    body = {"messages": ASKED, "max_tokens": 4, "logprobs": True}
    _, frames = frames_of(client, CHAT, body)
    assert frames[0][0].identity is None
    record = encode_resumption(Resumption(AnswerIdentity("a", 1, 2), []))
    headers = {JOURNAL_HEADER: "1", RESUME_HEADER: str(len(record)), "content-type": "application/json"}
    refused = client.post(CHAT, content=record + json.dumps(body).encode(), headers=headers)
    assert refused.status_code == 400
    assert "cannot go on elsewhere" in refused.json()["error"]["message"]


WRONG: dict[str, list[Progress]] = {
    "token ids from 999999999": [Progress(0, 0, [999_999_999])],
    "token ids from -1": [Progress(0, 0, [-1, 5])],
    "prompt 3": [Progress(3, 0, [1])],
    "sequence 7": [Progress(0, 7, [1])],
    "once": [Progress(0, 0, [5]), Progress(0, 0, [5])],
    "40 tokens": [Progress(0, 0, [5] * 40)],
    "8 tokens": [Progress(0, 0, [5] * 8)],
    "behind its end": [Progress(0, 0, [5, 2])],
}


@pytest.mark.parametrize("words", list(WRONG))
def test_what_no_server_said_is_refused(client: httpx.Client, words: str) -> None:
    record = encode_resumption(Resumption(AnswerIdentity("a", 1, 2), WRONG[words]))
    headers = {JOURNAL_HEADER: "1", RESUME_HEADER: str(len(record)), "content-type": "application/json"}
    body = json.dumps({"messages": ASKED, "max_tokens": 8}).encode()
    refused = client.post(CHAT, content=record + body, headers=headers)
    assert refused.status_code == 400
    assert words in refused.json()["error"]["message"]


@pytest.mark.parametrize("length", ["0", "-4", "x", "99999999", "1" * 40])
def test_a_wrong_length_is_refused(client: httpx.Client, length: str) -> None:
    headers = {JOURNAL_HEADER: "1", RESUME_HEADER: length, "content-type": "application/json"}
    refused = client.post(CHAT, content=b'{"messages": []}', headers=headers)
    assert refused.status_code == 400
    assert "x-quire-resume" in refused.json()["error"]["message"]


def test_bytes_that_are_no_record_are_refused(client: httpx.Client) -> None:
    headers = {JOURNAL_HEADER: "1", RESUME_HEADER: "4", "content-type": "application/json"}
    refused = client.post(CHAT, content=b"\xff\xff\xff\xff{}", headers=headers)
    assert refused.status_code == 400
    assert "cannot be read" in refused.json()["error"]["message"]


def test_tokens_that_no_grammar_allows_fail_their_own_request(client: httpx.Client) -> None:
    record = encode_resumption(Resumption(AnswerIdentity("a", 1, 2), [Progress(0, 0, [400, 401, 402])]))
    headers = {JOURNAL_HEADER: "1", RESUME_HEADER: str(len(record)), "content-type": "application/json"}
    form = {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": {"type": "integer"}}}
    body = {"messages": ASKED, "max_tokens": 8, "response_format": form}
    answer = client.post(CHAT, content=record + json.dumps(body).encode(), headers=headers)
    assert answer.status_code in (200, 400)
    if answer.status_code == 200:
        assert 400 <= list(FrameReader().feed(answer.content))[-1][0].status < 600
    assert client.post(CHAT, json={"messages": ASKED, "max_tokens": 2}).status_code == 200
