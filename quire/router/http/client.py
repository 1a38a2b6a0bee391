"""A client of one member: connections that are kept and used again, as many as there are answers at once."""

import asyncio
import ssl
from collections.abc import Iterable
from time import monotonic

from quire.core.http_address import HttpAddress
from quire.router.http.answer import Answer, MemberLost
from quire.router.http.connection import Connection

_LONGEST_FREE = 15.0
"""Seconds that a connection is kept without use: less than any server keeps it."""
_MOST_FREE = 256
_NANO = 1e-9
_HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade",
     b"content-length", b"host", b"expect")
)  # fmt: skip
"""Headers that are about one connection, or that the client writes itself."""


class MemberClient:
    """Lives on the event loop."""

    def __init__(self, address: HttpAddress, connect_timeout: float, ca_file: str | None = None) -> None:
        self._address = address
        self._timeout = connect_timeout
        self._tls = ssl.create_default_context(cafile=ca_file) if address.is_encrypted else None
        self._free: list[Connection] = []
        self._all: set[Connection] = set()

    async def ask(
        self, method: str, target: str, headers: Iterable[tuple[bytes, bytes]] = (), body: bytes | None = None
    ) -> Answer:
        """Wait for the status and headers of an answer, whose reader closes it. Raises MemberLost."""
        request = self._request(method, target, headers, body)
        kept = self._kept()
        if kept is not None:
            try:
                return await self._begun(kept.ask(request))
            except MemberLost as lost:
                if lost.may_have_begun:
                    raise
                # the member gave up an idle connection while the request was on its way to it
        return await self._begun((await self._new()).ask(request))

    @property
    def heard(self) -> float:
        """When it last sent anything, on the monotonic clock."""
        return max((each.arrived for each in self._all), default=0) * _NANO

    def close(self, why: str = "the member was given up") -> None:
        """All answers that are on their way fail."""
        for connection in list(self._all):
            connection.close(why)
        self._free.clear()

    async def _begun(self, answer: Answer) -> Answer:
        try:
            await answer.begun()
        except BaseException:
            answer.close()
            raise
        return answer

    def _request(self, method: str, target: str, headers: Iterable[tuple[bytes, bytes]], body: bytes | None) -> bytes:
        lines = [f"{method} {self._address.path}{target} HTTP/1.1\r\nhost: {self._address.authority}".encode("latin-1")]
        lines.extend(name + b": " + value for name, value in headers if name not in _HOP_BY_HOP)
        if body is not None:
            lines.append(b"content-length: %d" % len(body))
        return b"\r\n".join(lines) + b"\r\n\r\n" + (body or b"")

    def _kept(self) -> Connection | None:
        while self._free:
            connection = self._free.pop()
            if connection.is_open and monotonic() - connection.free_since < _LONGEST_FREE:
                return connection
            connection.close()
        return None

    async def _new(self) -> Connection:
        loop, address = asyncio.get_running_loop(), self._address
        try:
            async with asyncio.timeout(self._timeout):
                _, connection = await loop.create_connection(
                    lambda: Connection(self._freed, self._all.discard), address.host, address.port, ssl=self._tls
                )
        except TimeoutError:
            raise MemberLost(f"no connection within {self._timeout:g} s", may_have_begun=False) from None
        except (OSError, ssl.SSLError) as error:
            raise MemberLost(f"no connection: {error}", may_have_begun=False) from None
        self._all.add(connection)
        return connection

    def _freed(self, connection: Connection) -> None:
        if len(self._free) < _MOST_FREE:
            self._free.append(connection)
        else:
            connection.close()
