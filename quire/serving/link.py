"""Link: whole messages over one connection between two processes."""

import asyncio
import struct

from quire.core.errors import QuireError

_LENGTH = struct.Struct("<I")
_MOST_BYTES = 1 << 30
"""Of one message; a prompt of a million tokens takes five million."""


class LinkRefused(QuireError):
    """The other side is not who it should be, or says what cannot be read."""


class Link:
    """Says where a message ends; what it means is for others."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def receive(self) -> bytes:
        """The next message; raises IncompleteReadError or ConnectionError at the end of the connection."""
        (size,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
        if size > _MOST_BYTES:
            raise LinkRefused(f"a message of {size} bytes is more than {_MOST_BYTES}")
        return await self._reader.readexactly(size)

    def send(self, data: bytes) -> None:
        """Never waits; what a closed connection is sent is dropped."""
        if not self._writer.is_closing():
            self._writer.write(_LENGTH.pack(len(data)) + data)

    @property
    def unsent_bytes(self) -> int:
        return self._writer.transport.get_write_buffer_size()

    def close(self) -> None:
        self._writer.close()
