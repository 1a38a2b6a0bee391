"""Streams: a generation as it is sent while it grows: server-sent events, lines of JSON, or nothing but its text.

The one place where answers are streamed over HTTP; what the events say is each API's writer's to know.
"""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from quire.core.errors import InvalidRequest, QuireError
from quire.core.outputs import Delta
from quire.protocol.journal import JOURNAL_HEADER, STREAM, WHOLE
from quire.protocol.writer import Event, Writer
from quire.server.call import Call
from quire.server.errors import error_headers, error_object, error_response, row_of
from quire.server.journaled import Frames
from quire.server.listen.http_protocol import ABORT
from quire.server.openai.json_response import json_response
from quire.serving.running import Running

KEEP_ALIVE_SECONDS = 15.0
"""Seconds of silence after which a comment is sent, so that no proxy takes a waiting request for a dead one."""
STILL_HERE = b": still here\n\n"
_T = TypeVar("_T")


class _Stream(Response):
    """Sends a generation until it is finished, fails, or its client goes away."""

    charset = "utf-8"
    journal_kind = STREAM

    def __init__(self, generation: Running, writer: Writer, request_id: str, frames: Frames | None = None) -> None:
        """`frames` is for a router: what another server would need travels beside what is sent."""
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        if frames is not None:
            self.headers[JOURNAL_HEADER] = self.journal_kind
        self._frames = frames
        self._generation = generation
        self._writer = writer
        self._request_id = request_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send(send))
        self._generation.on_drop = lambda: _cut(scope, sending)
        try:
            await until_gone(receive, sending)
        except ClientDisconnect:
            pass
        finally:
            self._generation.cancel()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for part in self._parts() if self._frames is None else self._framed(self._frames):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _parts(self) -> AsyncIterator[bytes]:
        yield self._opening()
        try:
            async for deltas in self._generation.deltas(idle=KEEP_ALIVE_SECONDS):
                yield self._pieces(deltas) if deltas else self._keep_alive()
            yield self._closing()
        except QuireError as error:
            yield self._failure(error)

    async def _framed(self, frames: Frames) -> AsyncIterator[bytes]:
        """The same parts; of a resumed generation those that its client does not have."""
        opening = self._opening()
        yield frames.first(b"" if frames.is_resumed else opening)
        is_replay = frames.is_resumed
        try:
            async for deltas in self._generation.deltas(idle=KEEP_ALIVE_SECONDS):
                payload = self._pieces(deltas) if deltas else self._keep_alive()
                if not is_replay:
                    yield frames.piece(deltas, payload)
                is_replay = False
            yield await self._last(frames)
        except QuireError as error:
            yield self._broken(frames, error)

    async def _last(self, frames: Frames) -> bytes:
        return frames.last(self._closing())

    def _broken(self, frames: Frames, error: QuireError) -> bytes:
        return frames.last(self._failure(error), row_of(error).status, error_headers(error).items())

    @abstractmethod
    def _opening(self) -> bytes: ...

    @abstractmethod
    def _pieces(self, deltas: list[Delta]) -> bytes: ...

    @abstractmethod
    def _keep_alive(self) -> bytes: ...

    @abstractmethod
    def _closing(self) -> bytes: ...

    @abstractmethod
    def _failure(self, error: QuireError) -> bytes: ...


class EventStream(_Stream):
    """Server-sent events."""

    media_type = "text/event-stream"

    def _opening(self) -> bytes:
        return encode_events(self._writer.opening())

    def _pieces(self, deltas: list[Delta]) -> bytes:
        return encode_events(event for delta in deltas for event in self._writer.piece(delta))

    def _keep_alive(self) -> bytes:
        return STILL_HERE

    def _closing(self) -> bytes:
        return encode_events(self._writer.closing(self._generation.outputs()))

    def _failure(self, error: QuireError) -> bytes:
        return encode_events(self._writer.failure(error_object(error, self._request_id)))


class LineStream(_Stream):
    """A JSON object a line (NDJSON), as Ollama's clients read it. It has no way to say that nothing has come yet."""

    media_type = "application/x-ndjson"

    def _opening(self) -> bytes:
        return encode_lines(self._writer.opening())

    def _pieces(self, deltas: list[Delta]) -> bytes:
        return encode_lines(event for delta in deltas for event in self._writer.piece(delta))

    def _keep_alive(self) -> bytes:
        return b""

    def _closing(self) -> bytes:
        return encode_lines(self._writer.closing(self._generation.outputs()))

    def _failure(self, error: QuireError) -> bytes:
        return encode_lines(self._writer.failure(error_object(error, self._request_id)))


class TextStream(_Stream):
    """The text alone, for people with `curl`."""

    media_type = "text/plain"

    @staticmethod
    def check(call: Call) -> None:
        """Raise unless the call has one text; several would run into each other."""
        if len(call.prompts) > 1 or call.params.num_sequences > 1:
            raise InvalidRequest(
                "as plain text only one answer can be streamed; ask for one prompt and n 1, or accept "
                "text/event-stream.",
                field="n",
            )
        if not call.writer.is_plain:
            raise InvalidRequest(
                "an answer with its prompt (echo) cannot be streamed as plain text; accept text/event-stream.",
                field="echo",
            )

    def _opening(self) -> bytes:
        return b""

    def _pieces(self, deltas: list[Delta]) -> bytes:
        return "".join(self._writer.plain_text(delta) for delta in deltas).encode()

    def _keep_alive(self) -> bytes:
        return b""

    def _closing(self) -> bytes:
        self._writer.closing(self._generation.outputs())  # it may keep the answer for later
        return b"\n"

    def _failure(self, error: QuireError) -> bytes:
        told = error_object(error, self._request_id)
        self._writer.failure(told)
        return f"\n[{told['message']}]\n".encode()


class WholeStream(_Stream):
    """A whole answer for a router, which hears of its tokens while it grows; its client hears of them at the end."""

    media_type = "application/json"
    journal_kind = WHOLE

    def __init__(
        self,
        generation: Running,
        writer: Writer,
        request_id: str,
        frames: Frames,
        path: str,
        flush: Callable[[], Awaitable[object]],
    ) -> None:
        """`flush` is waited for before the end is told: what the answer stores is there then."""
        super().__init__(generation, writer, request_id, frames)
        self._path = path
        self._flush = flush

    def _opening(self) -> bytes:
        return b""

    def _pieces(self, deltas: list[Delta]) -> bytes:
        return b""

    def _keep_alive(self) -> bytes:
        return b""

    def _closing(self) -> bytes:
        return bytes(json_response(self._writer.whole(self._generation.outputs())).body)

    async def _last(self, frames: Frames) -> bytes:
        payload = self._closing()
        await self._flush()
        return frames.last(payload)

    def _failure(self, error: QuireError) -> bytes:
        return bytes(error_response(error, self._request_id, self._path).body)


def encode_events(events: Iterable[Event]) -> bytes:
    """Events as a stream carries them."""
    return b"".join(_encoded(event) for event in events)


def encode_lines(events: Iterable[Event]) -> bytes:
    """Events as lines of JSON."""
    return b"".join(msgspec.json.encode(event.data) + b"\n" for event in events)


def _encoded(event: Event) -> bytes:
    data = event.data.encode() if isinstance(event.data, str) else msgspec.json.encode(event.data)
    name = b"" if event.name is None else b"event: " + event.name.encode() + b"\n"
    return name + b"data: " + data + b"\n\n"


async def until_gone(receive: Receive, work: "Coroutine[Any, Any, _T] | asyncio.Future[_T]") -> _T:
    """Do some work while its client is there; raises ClientDisconnect, and stops, as soon as it is not."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done() or working.cancelled():
            raise ClientDisconnect
        return await working
    finally:
        for task in (working, leaving):
            task.cancel()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _cut(scope: Scope, sending: "asyncio.Future[None]") -> None:
    """Cut the connection of a client that does not read; what it was still to be sent is thrown away."""
    sending.cancel()
    abort = scope.get("extensions", {}).get(ABORT)
    if abort is not None:
        abort()
