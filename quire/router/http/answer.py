"""One answer of a member, read piece by piece and no faster than its client reads."""

import asyncio
from collections import deque
from typing import Protocol

from quire.core.errors import QuireError
from quire.core.http_connection import Headers

_MOST_UNREAD = 256 * 1024
"""Bytes of an answer that may wait for its client before the member is not read any more."""


class MemberLost(QuireError):
    """A member did not answer, or not to the end."""

    def __init__(self, message: str, *, may_have_begun: bool = True) -> None:
        """`may_have_begun`: the member may have begun with what it was asked."""
        super().__init__(message)
        self.may_have_begun = may_have_begun


class AnsweringConnection(Protocol):
    """What an answer asks of the connection that it comes on."""

    def pause(self) -> None: ...
    def go_on(self) -> None: ...
    def let_go(self, answer: "Answer") -> None: ...


class Answer:
    """One answer on its way."""

    def __init__(self, connection: "AnsweringConnection") -> None:
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

    def begin(self, status: int, headers: Headers) -> None:
        self.status, self.headers = status, headers
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
