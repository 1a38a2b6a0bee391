"""A server that plays a script, and a clock that only the script moves: what a client measures is known exactly.

Before a piece is sent the clock is set, and the next step waits until the client has looked at it, which it does when
bytes arrive.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

MS = 1_000_000
"""Nanoseconds."""


class ScriptedClock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.now = 0
        self._was_read = asyncio.Event()

    def __call__(self) -> int:
        self._was_read.set()
        return self.now

    def set(self, now: int) -> None:
        self.now = now
        self._was_read.clear()

    async def was_read(self) -> None:
        await self._was_read.wait()


@dataclass
class Script:
    """An answer: a status, then pieces of the body, each at its moment. `close` ends the connection instead of the
    body, before the last chunk."""

    pieces: list[tuple[int, bytes]]
    status: int = 200
    drop: bool = False
    """End the connection instead of answering."""
    close: bool = False


@dataclass
class ScriptedServer:
    """Answers one request after the other with one script after the other."""

    clock: ScriptedClock
    scripts: list[Script]
    bodies: list[dict[str, Any]] = field(default_factory=list)
    connections: int = 0
    port: int = 0

    tasks: list["asyncio.Task[None] | None"] = field(default_factory=list)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.tasks.append(asyncio.current_task())
        with suppress(asyncio.CancelledError):
            await self._answer(reader, writer)
        writer.close()

    async def end(self) -> None:
        for task in self.tasks:
            assert task is not None
            task.cancel()
            await task

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _head(reader):
            length = int(next(line.split(b":")[1] for line in head if line.lower().startswith(b"content-length")))
            self.bodies.append(json.loads(await reader.readexactly(length)))
            script = self.scripts.pop(0)
            if script.drop:
                return
            self.clock.set(self.clock.now)
            writer.write(f"HTTP/1.1 {script.status} X\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
            await self.clock.was_read()
            for moment, piece in script.pieces:
                self.clock.set(moment)
                writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                await self.clock.was_read()
            if script.close:
                return
            writer.write(b"0\r\n\r\n")


async def _head(reader: asyncio.StreamReader) -> list[bytes]:
    try:
        return (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
    except asyncio.IncompleteReadError:
        return []


@asynccontextmanager
async def scripted_server(*scripts: Script) -> AsyncIterator[ScriptedServer]:
    served = ScriptedServer(ScriptedClock(), list(scripts))
    server = await asyncio.start_server(served.handle, "127.0.0.1", 0)
    served.port = server.sockets[0].getsockname()[1]
    async with server:
        yield served
        await served.end()


def event(told: Any) -> bytes:
    return b"data: %s\n\n" % (told if isinstance(told, bytes) else json.dumps(told).encode())


def piece(text: str, finish_reason: str | None = None) -> bytes:
    return event({"choices": [{"index": 0, "text": text, "finish_reason": finish_reason}]})


def usage(prompt: int, output: int) -> bytes:
    return event({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": output}})


DONE = event(b"[DONE]")
