"""One connection to a server that is measured. Bytes carry the moment of their arrival.

The moment is taken before anything is parsed. A load generator must not be what is measured: between the socket and
whoever reads an answer there are httptools' parser and one call a piece, and nothing is copied or queued.
"""

import asyncio
from typing import Protocol

from quire.core.http_connection import Clock, Headers, HttpConnection


class BrokenAnswer(Exception):
    """What came back is no whole HTTP answer."""


class NoAnswer(BrokenAnswer):
    """The connection ended before a byte of the answer came."""


class AnswerSink(Protocol):
    """Whoever reads an answer as it comes."""

    def begin(self, status: int, arrived: int) -> None: ...
    def body(self, piece: bytes, arrived: int) -> None: ...


class Connection(HttpConnection):
    """Hands answers to sinks."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._sink: AnswerSink | None = None
        self._ended: asyncio.Future[bool] | None = None

    async def ask(self, request: bytes, sink: AnswerSink) -> bool:
        """Send, and hand the answer to `sink` until its end; whether the connection can be asked again."""
        self._sink = sink
        self._ended = asyncio.get_running_loop().create_future()
        self.send(request)
        try:
            return await self._ended
        finally:
            self._sink = self._ended = None

    def begun(self, status: int, headers: Headers) -> None:
        if self._sink is not None:
            self._sink.begin(status, self.arrived)

    def on_body(self, piece: bytes) -> None:
        if self._sink is not None:
            self._sink.body(piece, self.arrived)

    def ended(self, *, can_go_on: bool) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(can_go_on)

    def failed(self, why: str) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(BrokenAnswer(why) if self._has_bytes else NoAnswer(why))
