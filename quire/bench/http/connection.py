"""One HTTP/1.1 connection that is asked again and again. Bytes carry the moment of their arrival.

The moment is taken before anything is parsed. A load generator must not be what is measured: between the socket and
whoever reads an answer there are httptools' parser and one call a piece, and nothing is copied or queued.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

import httptools

Clock = Callable[[], int]
"""Nanoseconds."""


class BrokenAnswer(Exception):
    """What came back is no whole HTTP answer."""


class NoAnswer(BrokenAnswer):
    """The connection ended before a byte of the answer came."""


class AnswerSink(Protocol):
    """Whoever reads an answer as it comes."""

    def begin(self, status: int, arrived: int) -> None: ...
    def body(self, piece: bytes, arrived: int) -> None: ...


class Connection(asyncio.Protocol):
    """Asks one thing at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._sink: AnswerSink | None = None
        self._ended: asyncio.Future[bool] | None = None
        self._arrived = 0
        self._has_length = False
        self._has_begun = False
        self._has_bytes = False
        self.is_open = False

    async def ask(self, request: bytes, sink: AnswerSink) -> bool:
        """Send, and hand the answer to `sink` until its end; whether the connection can be asked again."""
        assert self._transport is not None
        self._parser = httptools.HttpResponseParser(self)
        self._sink, self._has_length, self._has_begun, self._has_bytes = sink, False, False, False
        self._ended = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._ended
        finally:
            self._sink = self._ended = None

    def close(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    # -- what asyncio calls ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's
        self._transport, self.is_open = cast("asyncio.Transport", transport), True

    def data_received(self, data: bytes) -> None:
        self._arrived = self._clock()
        if self._sink is None:
            self.close()  # nobody asked
            return
        self._has_bytes = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"no HTTP answer: {error}")

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        if self._has_begun and not self._has_length and error is None:
            self._end(False)  # such an answer is over when the connection is
        else:
            self._fail(f"the connection was lost{f': {error}' if error else ''}")

    # -- what the parser calls ---------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        self._has_length |= name.lower() in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        self._has_begun = True
        if self._sink is not None:
            self._sink.begin(self._parser.get_status_code(), self._arrived)

    def on_body(self, piece: bytes) -> None:
        if self._sink is not None:
            self._sink.body(piece, self._arrived)

    def on_message_complete(self) -> None:
        self._end(self._parser.should_keep_alive())

    def _end(self, can_go_on: bool) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(can_go_on)

    def _fail(self, why: str) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(BrokenAnswer(why) if self._has_bytes else NoAnswer(why))
