"""/v1/stream: many generations over one WebSocket, each by its own id, cancelled by it, and sent as fast as it is read.

A client sends one JSON object a frame:
  {"type": "start", "id": "a", "url": "/v1/chat/completions", "body": {...}, "window": 8}
  {"type": "more", "id": "a", "count": 8}      lets the server send so many frames more (where a window was given)
  {"type": "cancel", "id": "a"}
and gets, for each generation, `event` frames with the events of its API, then one `done`, `cancelled` or `error`. The
first `event` has `ignored`, the names of the body's fields that change no answer, where there are any.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from quire.core.errors import InvalidRequest, Overloaded, QuireError
from quire.protocol.openai.fields import Fields, refuse
from quire.protocol.writer import Event, Writer
from quire.server.body import parse_json
from quire.server.call import Call
from quire.server.caller import Caller
from quire.server.errors import error_object
from quire.serving.running import Running

if TYPE_CHECKING:
    from quire.server.serving import Serving

ReadCall = Callable[[object, "Serving", Caller], Awaitable[Call]]

PATH = "/v1/stream"
_MOST_GENERATIONS = 1024
_LONGEST_ID = 128
_MOST_WINDOW = 1 << 20
_POLICY = 1008
"""How a socket closes that does not keep the rules (RFC 6455)."""
_LAST_WORDS = 1.0
"""Seconds in which a client whose key was revoked may be told so; one that does not read is not waited for."""


@dataclass(slots=True)
class _Window:
    """How many frames a client is ready for; None: as many as come."""

    room: int | None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, count: int) -> None:
        if self.room is not None:
            self.room = min(self.room + count, _MOST_WINDOW)
            self.changed.set()

    async def take(self) -> None:
        """Wait for room for a frame."""
        if self.room is None:
            return
        while self.room <= 0:
            self.changed.clear()
            await self.changed.wait()
        self.room -= 1


@dataclass(frozen=True, slots=True)
class _Running:
    task: "asyncio.Task[None]"
    window: _Window


class StreamSocket:
    """One connection and the generations that it carries."""

    def __init__(self, socket: WebSocket, readers: Mapping[str, ReadCall]) -> None:
        """`readers` make calls of bodies, by the path that would take them over HTTP."""
        self._socket = socket
        self._serving: Serving = socket.app.state.serving
        self._caller: Caller = socket.state.caller
        self._readers = readers
        self._running: dict[str, _Running] = {}
        self._started = 0
        self._sending = asyncio.Lock()
        self._is_turned_out = False

    async def run(self) -> None:
        """Until the client leaves or its key is revoked; what it had running ends with it."""
        await self._socket.accept()
        reading = asyncio.create_task(self._read())
        revoked = asyncio.create_task(self._caller.revoked.wait())
        try:
            await asyncio.wait((reading, revoked), return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                reading.result()
            else:
                await self._turn_out()
        finally:
            tasks = [reading, revoked, *(running.task for running in self._running.values())]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self) -> None:
        with suppress(WebSocketDisconnect, RuntimeError):  # Starlette raises the latter when a send found it closed
            while True:
                await self._take(await self._receive())

    async def _turn_out(self) -> None:
        self._is_turned_out = True
        with suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
            async with asyncio.timeout(_LAST_WORDS):
                await self._socket.close(_POLICY, "this key was revoked or changed; connect again with a good one")

    # -- what the client says ----------------------------------------------------------------------------------

    async def _receive(self) -> str | bytes:
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1000))
        text: str | None = message.get("text")
        return text if text is not None else message.get("bytes") or b""

    async def _take(self, data: str | bytes) -> None:
        identity: str | None = None
        try:
            values = parse_json(data)
            if not isinstance(values, dict):
                raise refuse("frame", values, "an object with a type and an id")
            frame = Fields(values, known=("type", "id", "url", "body", "window", "count"))
            identity = _identity(frame)
            kind = frame.text("type")
            if kind == "start":
                self._start(identity, frame)
            elif kind == "more":
                self._more(identity, frame)
            elif kind == "cancel":
                self._cancel(identity)
            else:
                raise refuse("type", kind, "start, more or cancel")
        except QuireError as error:
            await self._send({"type": "error", "id": identity, "error": self._told(error)})

    def _start(self, identity: str, frame: Fields) -> None:
        url, window = frame.text("url") or "/v1/chat/completions", frame.whole("window")
        if identity in self._running:
            raise refuse("id", identity, "one that no running generation has")
        if url not in self._readers:
            raise refuse("url", url, f"one of {', '.join(self._readers)}")
        if window is not None and not 1 <= window <= _MOST_WINDOW:
            raise refuse("window", window, f"a whole number from 1 to {_MOST_WINDOW}")
        if len(self._running) >= _MOST_GENERATIONS:
            raise Overloaded(f"{_MOST_GENERATIONS} generations run on this socket, which is the most", retry_after=1.0)
        self._started += 1
        # each is a request of its own: it has an id of its own, in answers, logs and errors
        caller = replace(self._caller, request_id=f"{self._caller.request_id}-{self._started}")
        room = _Window(window)
        task = asyncio.create_task(self._generate(identity, caller, url, frame.get("body"), room))
        self._running[identity] = _Running(task, room)

    def _more(self, identity: str, frame: Fields) -> None:
        count = frame.whole("count") or 1
        if not 1 <= count <= _MOST_WINDOW:
            raise refuse("count", count, f"a whole number from 1 to {_MOST_WINDOW}")
        if identity in self._running:  # one that has just ended needs no more
            self._running[identity].window.add(count)

    def _cancel(self, identity: str) -> None:
        if identity in self._running:
            # soon, not now: a task that is cancelled before its first step never runs, and nobody would hear of its end
            asyncio.get_running_loop().call_soon(self._running[identity].task.cancel)

    # -- what the client gets ----------------------------------------------------------------------------------

    async def _generate(self, identity: str, caller: Caller, url: str, body: object, window: _Window) -> None:
        end: dict[str, Any] = {"type": "done", "id": identity, "request_id": caller.request_id}
        try:
            with self._serving.drain.work(), caller.account.request():
                await self._stream(identity, caller, await self._readers[url](body, self._serving, caller), window)
        except asyncio.CancelledError:
            end["type"] = "cancelled"
        except QuireError as error:
            end |= {"type": "error", "error": error_object(error, caller.request_id)}
        finally:
            del self._running[identity]
        if not self._is_turned_out:
            with suppress(WebSocketDisconnect, RuntimeError):
                await self._send(end)

    async def _stream(self, identity: str, caller: Caller, call: Call, window: _Window) -> None:
        generation = await self._serving.open(call, caller)
        task = self._running[identity].task
        generation.on_drop = lambda: _stop(task)
        ignored = list(call.ignored)
        first = {"ignored": ignored} if ignored else {}
        try:
            await generation.accepted()
            async for event in _events(generation, call.writer):
                if isinstance(event.data, str):  # [DONE], which the last frame says here
                    continue
                await window.take()
                named = {} if event.name is None else {"event": event.name}
                await self._send({"type": "event", "id": identity, "data": event.data, **named, **first})
                first = {}
        finally:
            generation.cancel()

    async def _send(self, frame: dict[str, Any]) -> None:
        async with self._sending:
            await self._socket.send_text(msgspec.json.encode(frame).decode())

    def _told(self, error: QuireError) -> dict[str, Any]:
        return error_object(error, self._caller.request_id)


async def _events(generation: Running, writer: Writer) -> AsyncIterator[Event]:
    for event in writer.opening():
        yield event
    async for deltas in generation.deltas():
        for event in (event for delta in deltas for event in writer.piece(delta)):
            yield event
    for event in writer.closing(generation.outputs()):
        yield event


def _stop(task: "asyncio.Task[None]") -> None:
    task.cancel()


def _identity(frame: Fields) -> str:
    identity = frame.text("id")
    if identity is None or not 0 < len(identity) <= _LONGEST_ID:
        raise InvalidRequest(
            f"id is {identity!r:.80}; it must be text of 1 to {_LONGEST_ID} characters, by which you know the "
            "generation",
            field="id",
        )
    return identity
