"""uvicorn's HTTP protocol with bounds on what comes before a request is one: its address, its headers, their time.

uvicorn's parser keeps headers for as long as they keep coming. Whatever is refused here never reaches the application,
so the answer is written by hand, in the shape of all others.
"""

import json
from asyncio import TimerHandle, Transport
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from quire.core.errors import InvalidRequest, QuireError, Unavailable
from quire.server.errors import BodyTooSlow, HeadersTooLarge, UrlTooLong, error_body, error_headers, row_of
from quire.server.gate.envelope import new_request_id

ABORT = "quire.abort"
"""The extension of an ASGI scope by which a connection is cut without waiting for its client."""


@dataclass(frozen=True, slots=True)
class ProtocolCaps:
    """What a connection may send before a request is handed on."""

    header_bytes: int = 64 * 2**10
    headers: int = 128
    url_bytes: int = 8 * 2**10
    header_seconds: float = 20.0
    connections: int = 10_000


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(
        self, *args: Any, caps: ProtocolCaps, count: Callable[[int], int] | None = None, **kwargs: Any
    ) -> None:
        """`count` is told how many connections are open in this process, and says how many the server has."""
        super().__init__(*args, **kwargs)
        self._caps = caps
        self._count = count
        self._in_headers = True
        self._header_bytes = 0
        self._silent_bytes = 0
        """Bytes read since the last of a body."""
        self._refusal: QuireError | None = None
        self._header_timer: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._num_open() > self._caps.connections:
            self._refuse(Unavailable(f"{self._caps.connections} connections are open, which is all there may be."))
        else:
            self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)
        self._num_open()

    def _num_open(self) -> int:
        """Connections of the whole server."""
        here = len(self.connections)
        return here if self._count is None else self._count(here)

    def data_received(self, data: bytes) -> None:
        """Feed what may still be headers by itself, so that their bytes are counted before the parser keeps them."""
        while data and not self.transport.is_closing() and self.transport.get_protocol() is self:
            piece, data = data[: self._room()], data[self._room() :]
            self._header_bytes += len(piece)
            self._silent_bytes += len(piece)
            super().data_received(piece)
            if self._room() <= 0 and not self.transport.is_closing():
                self._refuse(self._too_large(f"more than {self._caps.header_bytes:,} bytes"))

    def _room(self) -> int:
        """Bytes that may be read before something must have come of them.

        Behind the headers that bounds the trailers of a chunked body, which the parser keeps as well.
        """
        return self._caps.header_bytes - (self._header_bytes if self._in_headers else self._silent_bytes)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if not self._in_headers:  # not the first request of the connection: some of its headers may be read already
            self._in_headers, self._header_bytes = True, 0
        self._start_timer()

    def on_body(self, body: bytes) -> None:
        self._silent_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._silent_bytes = 0
        super().on_message_complete()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > self._caps.url_bytes:
            raise self._refused(UrlTooLong(f"the address is longer than {self._caps.url_bytes:,} bytes; shorten it."))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if len(self.headers) > self._caps.headers:
            raise self._refused(self._too_large(f"more than {self._caps.headers} headers"))

    def on_headers_complete(self) -> None:
        self._in_headers, self._silent_bytes = False, 0
        self._stop_timer()
        # a client that does not read is cut off by this: closing would wait for it to read
        extensions: dict[str, Any] = {**(self.scope.get("extensions") or {}), ABORT: self.transport.abort}
        self.scope["extensions"] = extensions
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """uvicorn's answer to what its parser cannot read, or to what was raised while it did."""
        self._refuse(self._refusal or InvalidRequest("this is not HTTP/1.1 as it should be; check what sent it."))

    def _refused(self, error: QuireError) -> httptools.HttpParserError:
        """To be raised inside the parser, which makes an error of its own of it; `send_400_response` tells this one."""
        self._refusal = error
        return httptools.HttpParserError(str(error))

    def _refuse(self, error: QuireError) -> None:
        self._stop_timer()
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(raw_answer(error))
        self.transport.close()

    def _too_large(self, given: str) -> HeadersTooLarge:
        return HeadersTooLarge(
            f"the headers are {given}, and the server takes {self._caps.headers} of {self._caps.header_bytes:,} bytes; "
            "send fewer, or raise --max-header-kb."
        )

    def _start_timer(self) -> None:
        if self._header_timer is None:
            self._header_timer = self.loop.call_later(self._caps.header_seconds, self._headers_are_late)

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _headers_are_late(self) -> None:
        self._header_timer = None
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self._start_timer()  # reading may stand still because an earlier request is being answered
        elif self._header_bytes == 0:
            self.transport.close()
        else:
            self._refuse(BodyTooSlow(f"the headers took more than {self._caps.header_seconds:g} seconds; send faster."))


def raw_answer(error: QuireError) -> bytes:
    """A whole HTTP answer that ends its connection."""
    identity, status = new_request_id(), row_of(error).status
    body = json.dumps(error_body(error, identity, "")).encode()
    headers = {
        **error_headers(error),
        "content-type": "application/json",
        "content-length": str(len(body)),
        "x-request-id": identity,
        "connection": "close",
    }
    lines = b"".join(f"{name}: {value}\r\n".encode() for name, value in headers.items())
    return STATUS_LINE[status] + lines + b"\r\n" + body
