"""Many requests at once against a real server, and what came back."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
EMBEDDINGS = "/v1/embeddings"


@dataclass
class Answer:
    """What one request got."""

    status: int = 0
    texts: dict[int, str] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    tokens: int = 0
    """As the server counted them."""
    is_done: bool = False
    error: dict[str, Any] | None = None
    retry_after: str | None = None
    """As the headers say it."""
    pieces: int = 0
    vectors: list[list[float]] = field(default_factory=list)


def client_of(url: str, headers: dict[str, str] | None = None) -> httpx.AsyncClient:
    """As many connections as are asked for, and patience."""
    return httpx.AsyncClient(
        base_url=url,
        headers=headers,
        timeout=None,
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
    )


async def ask(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> Answer:
    """The whole answer, streamed or not."""
    if body.get("stream"):
        return await read_stream(client, path, body)
    response = await client.post(path, json=body)
    answer = Answer(response.status_code, retry_after=response.headers.get("retry-after"))
    told = response.json()
    if "error" in told:
        answer.error = told["error"]
        return answer
    answer.is_done = True
    if path == EMBEDDINGS:
        answer.vectors = [each["embedding"] for each in told["data"]]
        return answer
    for choice in told["choices"]:
        answer.texts[choice["index"]] = choice["text"] if path == COMPLETIONS else choice["message"]["content"]
        answer.reasons[choice["index"]] = choice["finish_reason"]
    answer.tokens = told["usage"]["completion_tokens"]
    return answer


async def read_stream(
    client: httpx.AsyncClient, path: str, body: dict[str, Any], leave_after: int | None = None
) -> Answer:
    """A stream to its end, or until `leave_after` pieces of it have come."""
    answer = Answer()
    body = body | {"stream": True, "stream_options": {"include_usage": True}}
    async with client.stream("POST", path, json=body) as response:
        answer.status, answer.retry_after = response.status_code, response.headers.get("retry-after")
        if response.status_code != 200:
            answer.error = json.loads(await response.aread())["error"]
            return answer
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                _take(answer, line.removeprefix("data: "))
            if leave_after is not None and answer.pieces >= leave_after:
                break
    return answer


def _take(answer: Answer, data: str) -> None:
    if data == "[DONE]":
        assert not answer.is_done, "a stream ended twice"
        answer.is_done = True
        return
    told = json.loads(data)
    if "error" in told:
        answer.error = told["error"]
        return
    if told.get("usage"):
        answer.tokens = told["usage"]["completion_tokens"]
    for choice in told["choices"]:
        index = choice["index"]
        piece = choice["text"] if "text" in choice else choice["delta"].get("content") or ""
        answer.pieces += bool(piece)
        answer.texts[index] = answer.texts.get(index, "") + piece
        if choice["finish_reason"]:
            assert index not in answer.reasons, "a sequence ended twice"
            answer.reasons[index] = choice["finish_reason"]


async def all_at_once(work: list[Callable[[], Awaitable[Answer]]]) -> list[Answer]:
    return list(await asyncio.gather(*(each() for each in work)))
