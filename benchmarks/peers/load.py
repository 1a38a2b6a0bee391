"""Many streams of `/v1/completions` at once, read by as little code as possible: the client shares the processors.

Every server here speaks OpenAI's protocol, and a bare HTTP/1.1 exchange over asyncio is enough for it.
"""

import asyncio
import json
import time
from dataclasses import dataclass
from statistics import median
from typing import Any

_DATA = b"data: "


class NotReady(Exception):
    """The server listens, and is still loading."""


@dataclass(frozen=True, slots=True)
class Stream:
    """One answer: seconds until its first and its last token, and how many it had, as the server counted."""

    first: float
    last: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Load:
    """What a server did for streams that began together."""

    output_rate: float
    """Tokens of all answers, over the time until the last one ended."""
    median_ttft: float
    """Seconds."""


def run_load(port: int, model: str, prompts: list[list[int]], output: int) -> Load:
    streams = asyncio.run(_all(port, model, prompts, output))
    short = [stream.tokens for stream in streams if stream.tokens != output]
    if short:
        raise RuntimeError(
            f"the server gave answers of {short} tokens, where {output} were asked for, without an end token"
        )
    rate = sum(stream.tokens for stream in streams) / max(stream.last for stream in streams)
    return Load(rate, median(stream.first for stream in streams))


async def _all(port: int, model: str, prompts: list[list[int]], output: int) -> list[Stream]:
    start = time.perf_counter()
    return list(await asyncio.gather(*(read_stream(port, model, prompt, output, start) for prompt in prompts)))


async def read_stream(port: int, model: str, prompt: list[int], output: int, start: float) -> Stream:
    """Ask, and read to the end. Times are counted from `start`."""
    body = {
        "model": model,
        "prompt": prompt,
        "max_tokens": output,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(_request(json.dumps(body).encode()))
        status = await reader.readline()
        if b" 503 " in status:
            raise NotReady
        if b" 200 " not in status:
            raise RuntimeError(f"the server answered {status!r}: {(await reader.read(2000))!r}")
        first, last, usage = await _read(reader, start)
    finally:
        writer.close()
    return Stream(first, last, usage["completion_tokens"])


async def _read(reader: asyncio.StreamReader, start: float) -> tuple[float, float, dict[str, Any]]:
    first, usage = None, None
    while not (line := await reader.readline()).startswith(_DATA + b"[DONE]"):
        if not line:
            raise RuntimeError("the stream ended without [DONE]")
        if not line.startswith(_DATA):
            continue  # a header, the size of a chunk, or the empty line between events
        first = first or time.perf_counter() - start
        if b'"completion_tokens"' in line:
            usage = json.loads(line.removeprefix(_DATA)).get("usage") or usage
    if first is None or usage is None:
        raise RuntimeError("the stream had no tokens, or did not say how many")
    return first, time.perf_counter() - start, usage


def _request(body: bytes) -> bytes:
    head = "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
