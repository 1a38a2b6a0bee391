"""A request's body, counted while it comes in: too much of it, or too slowly, ends the request."""

import asyncio
import time
from collections.abc import Callable

from starlette.types import Message, Receive

from quire.core.errors import InvalidRequest
from quire.server.errors import BodyTooLarge, BodyTooSlow
from quire.server.gate.credentials import Headers, only

_PATIENCE = 30.0
"""Seconds that a body may take whatever its size."""
_SLOWEST = 4096.0
"""Bytes a second that it must keep up on top of them."""
_LINGER = 2.0
"""Seconds to go on reading after a body was refused."""


class BoundedBody:
    """Stands in for `receive`."""

    def __init__(self, receive: Receive, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._receive = receive
        self._most = most
        self._clock = clock
        self._start = clock()
        self._received = 0
        self._complete = False

    def check_length(self, headers: Headers) -> None:
        """Refuse a body that says it is too large before any of it is read."""
        length = only(headers, b"content-length")
        if length is None:
            return
        if not length.isdigit() or len(length) > 18:
            raise InvalidRequest("the header content-length is no number of bytes.")
        if int(length) > self._most:
            raise self._too_large(f"{int(length):,} bytes")

    async def receive(self) -> Message:
        if self._complete:
            return await self._receive()
        allowed = _PATIENCE + self._received / _SLOWEST - (self._clock() - self._start)
        try:
            async with asyncio.timeout(allowed):
                message = await self._receive()
        except TimeoutError:
            raise BodyTooSlow(
                f"after {self._clock() - self._start:.0f} seconds only {self._received:,} bytes of the body had come; "
                "send it faster."
            ) from None
        self._received += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        if self._received > self._most:
            await self.linger()
            raise self._too_large(f"{self._received:,} bytes or more")
        return message

    async def linger(self) -> None:
        """Read on for a moment, and throw away what comes: nobody reads an answer while still writing."""
        try:
            async with asyncio.timeout(_LINGER):
                while not self._complete and self._received < 3 * self._most:
                    message = await self._receive()
                    self._received += len(message.get("body", b""))
                    self._complete = not message.get("more_body", False)
        except TimeoutError:
            return

    def _too_large(self, given: str) -> BodyTooLarge:
        return BodyTooLarge(
            f"the body has {given}, but the server takes {self._most:,} at most; send less, or raise --max-body-mb."
        )
