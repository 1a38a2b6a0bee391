"""Connections between fronts and engines on other hosts: where an engine listens, and who may speak to it.

Both sides prove that they know the shared secret before anything else is read (HMAC over fresh numbers of both). That
keeps strangers out; over networks where others can listen or interfere, use TLS as well.
"""

import asyncio
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from quire.core.errors import ConfigError
from quire.core.shared_secret import NUMBER_BYTES, PROOF_BYTES, fresh_number, proof, proves
from quire.serving.link import Link, LinkRefused

_GREETING = b"quire-engine-1\n"
_HANDSHAKE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """Where an engine listens: tcp://host:port, tls://host:port or unix:///path."""

    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def read(cls, text: str) -> "EngineAddress":
        try:
            parts = urlsplit(text)
            if parts.scheme == "unix" and parts.path and not parts.netloc:
                return cls("unix", path=parts.path)
            if parts.scheme in ("tcp", "tls") and parts.hostname and parts.port is not None and not parts.path:
                return cls(parts.scheme, parts.hostname, parts.port)
        except ValueError:
            pass
        raise ConfigError(
            f"{text!r} is no address of an engine; write tcp://host:port, tls://host:port or unix:///path/of/socket"
        )

    def __str__(self) -> str:
        if self.scheme == "unix":
            return f"unix://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


async def connect(address: EngineAddress, secret: bytes, ca_file: str | None = None) -> Link:
    """Reach an engine and have it prove who it is."""
    async with asyncio.timeout(_HANDSHAKE_SECONDS):
        if address.scheme == "unix":
            reader, writer = await asyncio.open_unix_connection(address.path)
        else:
            context = ssl.create_default_context(cafile=ca_file) if address.scheme == "tls" else None
            reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
        try:
            theirs = (await reader.readexactly(len(_GREETING) + NUMBER_BYTES)).removeprefix(_GREETING)
            if len(theirs) != NUMBER_BYTES:
                raise LinkRefused(f"what answers at {address} is no engine of quire, or of another version")
            ours = fresh_number()
            writer.write(ours + proof(secret, b"front", theirs, ours))
            answer = await reader.readexactly(PROOF_BYTES)
        except asyncio.IncompleteReadError:
            writer.close()
            raise LinkRefused(f"the engine at {address} closed the connection; is its secret another one?") from None
        except BaseException:
            writer.close()
            raise
        if not proves(answer, secret, b"engine", ours, theirs):
            writer.close()
            raise LinkRefused(f"what answers at {address} does not know the secret")
    return Link(reader, writer)


async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes) -> Link:
    """Have whoever connected prove that it may; raises LinkRefused, IncompleteReadError or TimeoutError."""
    async with asyncio.timeout(_HANDSHAKE_SECONDS):
        ours = fresh_number()
        writer.write(_GREETING + ours)
        answer = await reader.readexactly(NUMBER_BYTES + PROOF_BYTES)
        theirs, given = answer[:NUMBER_BYTES], answer[NUMBER_BYTES:]
        if not proves(given, secret, b"front", ours, theirs):
            raise LinkRefused("a front that does not know the secret was turned away")
        writer.write(proof(secret, b"engine", theirs, ours))
    return Link(reader, writer)
