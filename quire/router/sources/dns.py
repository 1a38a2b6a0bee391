"""Members from DNS: every address of a host name is one, as with a headless Service or round-robin records."""

import asyncio
import socket

from quire.router.sources.source import Named, SourceFailed


class DnsSource:
    """A name and a port."""

    every = 5.0

    def __init__(self, place: str) -> None:
        self.name = f"dns {place}"
        self._host, _, port = place.rpartition(":")
        self._port = int(port)

    async def look(self) -> list[Named] | None:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise SourceFailed(f"the name cannot be resolved: {error}") from None
        hosts = sorted({str(place[0]) for *_, place in found})
        return [
            Named(f"http://[{host}]:{self._port}" if ":" in host else f"http://{host}:{self._port}") for host in hosts
        ]
