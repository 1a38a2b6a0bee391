"""One HTTP/1.1 connection to a member. Its answers are read piece by piece, and no faster than their client reads."""

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import cast

import httptools

from quire.core.errors import QuireError

_MOST_UNREAD = 256 * 1024
"""Bytes of an answer that may wait for its client before the member is not read any more."""
_LONGEST_HEADERS = 256 * 1024
Headers = list[tuple[bytes, bytes]]


class MemberLost(QuireError):
    """A member did not answer, or not to the end."""

    def __init__(self, message: str, *, may_have_begun: bool = True) -> None:
        """`may_have_begun`: the member may have begun with what it was asked."""
        super().__init__(message)
        self.may_have_begun = may_have_begun


class Answer:
    """One answer on its way."""

    def __init__(self, connection: "Connection") -> None:
        self.status = 0
        self.headers: Headers = []
        self._connection = connection
        self._pieces: deque[bytes] = deque()
        self._unread = 0
        self._is_complete = False
        self._failure: MemberLost | None = None
        self._waiting: asyncio.Future[None] | None = None

    def header(self, name: bytes) -> bytes | None:
        return next((value for given, value in self.headers if given == name), None)

    async def begun(self) -> None:
        """Wait for its status and headers. Raises MemberLost."""
        while not self.status:
            if self._failure is not None:
                raise self._failure
            await self._wait()

    async def read(self) -> bytes:
        """More of its body; nothing at the end. Raises MemberLost."""
        while not self._pieces:
            if self._is_complete:
                return b""
            if self._failure is not None:
                raise self._failure
            await self._wait()
        piece = self._pieces.popleft() if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        if self._unread > _MOST_UNREAD:
            self._connection.go_on()
        self._unread = 0
        return piece

    async def whole(self, most: int) -> bytes:
        """All of its body. Raises MemberLost, also for one that is longer."""
        body = bytearray()
        while piece := await self.read():
            body += piece
            if len(body) > most:
                raise MemberLost(f"the answer is longer than {most:,} bytes")
        return bytes(body)

    def close(self) -> None:
        """Nobody reads the rest."""
        self._connection.let_go(self)

    @property
    def is_complete(self) -> bool:
        return self._is_complete

    # -- what the connection says ------------------------------------------------------------------------------

    def add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._unread += len(piece)
        if self._unread > _MOST_UNREAD:
            self._connection.pause()
        self._wake()

    def begin(self, status: int) -> None:
        self.status = status
        self._wake()

    def end(self) -> None:
        self._is_complete = True
        self._wake()

    def fail(self, failure: MemberLost) -> None:
        if not self._is_complete and self._failure is None:
            self._failure = failure
            self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def _wait(self) -> None:
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            await self._waiting
        finally:
            self._waiting = None


class Connection(asyncio.Protocol):
    """Asks one thing at a time."""

    def __init__(self, on_free: Callable[["Connection"], None], on_closed: Callable[["Connection"], None]) -> None:
        """`on_free` is called when it may be asked again, `on_closed` when it never may."""
        self.heard = 0.0
        """When the last byte came; a connection that was accepted says nothing of who accepted it."""
        self.is_open = False
        self.free_since = 0.0
        self._on_free = on_free
        self._on_closed = on_closed
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._answer: Answer | None = None
        self._has_bytes = False
        self._has_length = False
        self._header_bytes = 0

    def ask(self, request: bytes) -> Answer:
        """Send; the answer comes by and by."""
        assert self._transport is not None
        assert self._answer is None
        self._parser = httptools.HttpResponseParser(self)
        self._has_bytes = self._has_length = False
        self._header_bytes = 0
        self._answer = answer = Answer(self)
        self._transport.write(request)
        return answer

    def pause(self) -> None:
        if self._transport is not None and self.is_open:
            self._transport.pause_reading()

    def go_on(self) -> None:
        if self._transport is not None and self.is_open:
            self._transport.resume_reading()

    def let_go(self, answer: Answer) -> None:
        """Its answer is not wanted; what is not complete ends with the connection."""
        if self._answer is answer:
            self.close()

    def close(self, why: str = "the connection was closed") -> None:
        if self._answer is not None:
            answer, self._answer = self._answer, None
            answer.fail(MemberLost(why))
        if self._transport is not None and self.is_open:
            self.is_open = False
            self._transport.abort()

    # -- what asyncio calls ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's
        self._transport, self.is_open = cast("asyncio.Transport", transport), True

    def data_received(self, data: bytes) -> None:
        self.heard = monotonic()
        if self._answer is None:
            self.close()  # nobody asked
            return
        self._has_bytes = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.close(f"what it sent is no HTTP answer: {error}")

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        answer, self._answer = self._answer, None
        if answer is not None:
            if answer.status and not self._has_length and error is None:
                answer.end()  # such an answer is over when the connection is
            else:
                why = f"the connection was lost{f': {error}' if error else ''}"
                answer.fail(MemberLost(why, may_have_begun=self._has_bytes))
        self._on_closed(self)

    # -- what the parser calls ---------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        assert self._answer is not None
        name = name.lower()
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > _LONGEST_HEADERS:
            raise httptools.HttpParserError("its headers are too long")
        self._has_length |= name in (b"content-length", b"transfer-encoding")
        self._answer.headers.append((name, value))

    def on_headers_complete(self) -> None:
        assert self._answer is not None
        status = self._parser.get_status_code()
        if status < 200:  # something in between, such as 100 Continue
            self._answer.headers.clear()
            self._has_length = False
        else:
            self._answer.begin(status)

    def on_body(self, piece: bytes) -> None:
        if self._answer is not None:
            self._answer.add(piece)

    def on_message_complete(self) -> None:
        answer = self._answer
        if answer is None or not answer.status:
            return
        self._answer = None
        answer.end()
        self.go_on()
        if self._parser.should_keep_alive() and self.is_open:
            self.free_since = monotonic()
            self._on_free(self)
        else:
            self.close()
