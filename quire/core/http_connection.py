"""HttpConnection: the client's end of HTTP/1.1, which is asked one thing at a time.

It knows when an answer begins, ends or breaks off; what becomes of the answer is its subclasses' business.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import cast

import httptools

_LONGEST_HEADERS = 256 * 1024
"""Bytes."""
Headers = list[tuple[bytes, bytes]]
"""Names are in lower case."""
Clock = Callable[[], int]
"""Nanoseconds."""


class HttpConnection(asyncio.Protocol, ABC):
    """Pieces of a body go from httptools' parser to `on_body`, without a call or a copy in between."""

    def __init__(self, clock: Clock) -> None:
        self.is_open = False
        self.arrived = 0
        """When bytes last came, by `clock`, taken before they are parsed; 0: none have. That a connection was accepted
        says nothing of who accepted it."""
        self._clock = clock
        self._is_asked = False
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._headers: Headers = []
        self._header_bytes = 0
        self._has_begun = False
        self._has_bytes = False
        self._has_length = False

    # -- what subclasses say -----------------------------------------------------------------------------------

    @abstractmethod
    def begun(self, status: int, headers: Headers) -> None:
        """An answer has begun."""

    @abstractmethod
    def on_body(self, piece: bytes) -> None:
        """A piece of its body."""

    @abstractmethod
    def ended(self, *, can_go_on: bool) -> None:
        """It is complete. `can_go_on`: the connection may be asked again."""

    @abstractmethod
    def failed(self, why: str) -> None:
        """It will never be complete."""

    # -- what they may do --------------------------------------------------------------------------------------

    def send(self, request: bytes) -> None:
        """A whole request, whose answer is awaited from now on."""
        assert self._transport is not None
        self._is_asked = True
        self._parser = httptools.HttpResponseParser(self)
        self._headers, self._header_bytes = [], 0
        self._has_begun = self._has_bytes = self._has_length = False
        self._transport.write(request)

    def drop(self) -> None:
        """Close it. What is on its way is nobody's any more."""
        self._is_asked = False
        if self._transport is not None and self.is_open:
            self.is_open = False
            self._transport.abort()

    # -- what asyncio calls ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's
        self._transport, self.is_open = cast("asyncio.Transport", transport), True

    def data_received(self, data: bytes) -> None:
        self.arrived = self._clock()
        if not self._is_asked:
            self.drop()
            return
        self._has_bytes = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._break(f"what it sent is no HTTP answer: {error}")

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        if self._is_asked and self._has_begun and not self._has_length and error is None:
            self._is_asked = False
            self.ended(can_go_on=False)  # such an answer is over when the connection is
        elif self._is_asked:
            self._break(f"the connection was lost{f': {error}' if error else ''}")

    # -- what the parser calls ---------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > _LONGEST_HEADERS:
            raise httptools.HttpParserError("its headers are too long")
        self._has_length |= name in (b"content-length", b"transfer-encoding")
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:  # something in between, such as 100 Continue
            self._headers, self._has_length = [], False
        else:
            self._has_begun = True
            self.begun(status, self._headers)

    def on_message_complete(self) -> None:
        if self._has_begun:
            self._is_asked = False
            self.ended(can_go_on=self._parser.should_keep_alive())

    def _break(self, why: str) -> None:
        self.drop()
        self.failed(why)
