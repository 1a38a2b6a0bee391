"""A small HTTP server that answers as an instance of quire's would, or as it should not."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from quire.protocol.journal import AnswerIdentity, Note, Progress, frame, read_resumption

WORDS = [f"word{number} " for number in range(12)]
"""Every answer: token n is word n."""


@dataclass
class Got:
    """A request as it came."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Writing:
    """The answer to one request."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def whole(self, status: int, told: Any, headers: dict[str, str] | None = None) -> None:
        body = told if isinstance(told, bytes) else json.dumps(told).encode()
        lines = {"content-type": "application/json", **(headers or {}), "content-length": str(len(body))}
        await self._send(_head(status, lines) + body)

    async def begin(self, headers: dict[str, str]) -> None:
        await self._send(_head(200, {**headers, "transfer-encoding": "chunked"}))

    async def chunk(self, data: bytes) -> None:
        await self._send(b"%x\r\n%s\r\n" % (len(data), data))

    async def end(self) -> None:
        await self._send(b"0\r\n\r\n")

    def cut(self) -> None:
        """What a killed process leaves."""
        self._writer.transport.abort()

    async def _send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()


def _head(status: int, headers: dict[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} said\r\n{lines}\r\n".encode()


Handler = Callable[[Got, Writing], Awaitable[None]]


@dataclass
class FakeMember:
    """What it is asked is in `got`, probes left out."""

    is_quire: bool = True
    models: tuple[str, ...] = ("m",)
    dies_after: int | None = None
    """Tokens of an answer before its connection is cut; None: it lives."""
    ready: int = 200
    """What it says of itself."""
    says: int = 200
    """What it says to any request but a probe."""
    hangs: bool = False
    handler: Handler | None = None
    """Answers instead of what is here."""
    models_handler: Handler | None = None
    got: list[Got] = field(default_factory=list)
    url: str = ""
    gap: float = 0.0
    """Seconds between two tokens."""
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def kill(self) -> None:
        """All connections are cut, and none is taken any more."""
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                got = await _read(reader)
                if self.hangs:
                    await asyncio.sleep(3600)
                await self._answer(got, Writing(writer))
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, got: Got, writing: Writing) -> None:
        if got.target == "/ready":
            says = {"x-quire-journal": "1"} if self.is_quire else {}
            await writing.whole(self.ready if self.is_quire else 404, {"status": "told"}, says)
            return
        if got.target == "/health":
            await writing.whole(200, {})
            return
        if got.target == "/v1/models" and self.models_handler is not None:
            await self.models_handler(got, writing)
            return
        if got.target == "/v1/models":
            owner = "quire" if self.is_quire else "vllm"
            await writing.whole(200, {"data": [{"id": name, "owned_by": owner} for name in self.models]})
            return
        self.got.append(got)
        if self.handler is not None:
            await self.handler(got, writing)
        elif self.says != 200:
            await writing.whole(self.says, {"error": {"message": "no"}}, {"retry-after": "3"})
        elif got.method == "POST" and "x-quire-journal" in got.headers and self.is_quire:
            await self._framed(got, writing)
        elif got.method == "POST" and self._wants_stream(got):
            await self._plain_stream(writing)
        else:
            await writing.whole(200, {"text": "".join(WORDS), "usage": {"total_tokens": 20}})

    @staticmethod
    def _wants_stream(got: Got) -> bool:
        return b'"stream": true' in got.body or b'"stream":true' in got.body

    async def _framed(self, got: Got, writing: Writing) -> None:
        length = int(got.headers.get("x-quire-resume", 0))
        resumed = read_resumption(got.body[:length]) if length else None
        got.body = got.body[length:]
        streamed = self._wants_stream(got)
        identity = AnswerIdentity("a", 1, 7) if resumed is None else resumed.identity
        had = [] if resumed is None else [token for each in resumed.sequences for token in each.tokens]
        assert had == list(range(len(had)))
        kind = "stream" if streamed else "whole"
        await writing.begin({"x-quire-journal": kind, "content-type": "text/event-stream", "x-said": "by a member"})
        opening = b"open " if streamed and resumed is None else b""
        await writing.chunk(frame(Note(identity=identity, prompt_tokens=5), opening))
        for place, token in enumerate(range(len(had), len(WORDS))):
            if place == self.dies_after:
                # and half a frame of the next token
                await writing.chunk(frame(Note(news=[Progress(0, 0, [token])]), b"lost")[:9])
                writing.cut()
                raise ConnectionResetError
            await asyncio.sleep(self.gap)
            payload = WORDS[token].encode() if streamed else b""
            await writing.chunk(frame(Note(news=[Progress(0, 0, [token])]), payload))
        last = b"end" if streamed else json.dumps({"text": "".join(WORDS)}).encode()
        await writing.chunk(frame(Note(status=200), last))
        await writing.end()

    async def _plain_stream(self, writing: Writing) -> None:
        await writing.begin({"content-type": "text/event-stream"})
        for place, word in enumerate(WORDS):
            if place == self.dies_after:
                writing.cut()
                raise ConnectionResetError
            await asyncio.sleep(self.gap)
            await writing.chunk(word.encode())
        await writing.end()


async def _read(reader: asyncio.StreamReader) -> Got:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return Got(method, target, headers, await reader.readexactly(int(headers.get("content-length", 0))))


@asynccontextmanager
async def fake_members(*members: FakeMember) -> AsyncIterator[None]:
    """All of them, until the end of the block."""
    for member in members:
        await member.start()
    try:
        yield
    finally:
        for member in members:
            member.kill()
