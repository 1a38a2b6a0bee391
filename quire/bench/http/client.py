"""A client of one server: connections that are kept and used again, as many as there are answers at once."""

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress

from quire.bench.http.connection import AnswerSink, Connection, NoAnswer
from quire.core.http_address import HttpAddress
from quire.core.http_connection import Clock

_USER_AGENT = "quire-bench"


class Client:
    """Sends requests; the order of answers is nobody's business here."""

    def __init__(self, address: HttpAddress, headers: Mapping[str, str], clock: Clock) -> None:
        self._address = address
        self._clock = clock
        self._idle: list[Connection] = []
        self._tls = ssl.create_default_context() if address.is_encrypted else None
        lines = {"Host": address.authority, "User-Agent": _USER_AGENT, "Accept": "*/*", **headers}
        self._head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())

    async def post(self, route: str, body: bytes, sink: AnswerSink) -> None:
        """JSON to a route; the answer goes to `sink`."""
        about = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        await self._exchange(self._request("POST", route, about) + body, sink)

    async def get(self, route: str, sink: AnswerSink) -> None:
        await self._exchange(self._request("GET", route, ""), sink)

    def close(self) -> None:
        for connection in self._idle:
            connection.drop()
        self._idle.clear()

    def _request(self, method: str, route: str, about: str) -> bytes:
        return f"{method} {self._address.path}{route} HTTP/1.1\r\n{self._head}{about}\r\n".encode("latin-1")

    async def _exchange(self, request: bytes, sink: AnswerSink) -> None:
        kept = self._kept()
        if kept is not None:
            # a server may give up an idle connection while a request is on its way to it
            with suppress(NoAnswer):
                await self._ask(kept, request, sink)
                return
        await self._ask(await self._new(), request, sink)

    async def _ask(self, connection: Connection, request: bytes, sink: AnswerSink) -> None:
        can_go_on = False
        try:
            can_go_on = await connection.ask(request, sink)
        finally:
            if can_go_on and connection.is_open:
                self._idle.append(connection)
            else:
                connection.drop()

    def _kept(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
        return None

    async def _new(self) -> Connection:
        loop = asyncio.get_running_loop()
        address = self._address
        _, connection = await loop.create_connection(
            lambda: Connection(self._clock), address.host, address.port, ssl=self._tls
        )
        return connection
