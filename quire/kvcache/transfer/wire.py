"""What engines say to each other about KV: typed msgpack in frames, with the bytes of blocks behind some of them.

Both sides prove that they know the shared secret before anything else is read.
"""

import socket
import ssl
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import SplitResult, urlsplit

import msgspec

from quire.core.carried_blocks import BlockPlace
from quire.core.errors import ConfigError, QuireError
from quire.core.shared_secret import SecretRefused, prove_to_called, prove_to_caller
from quire.kvcache.transfer.format import VERSION, KVFormat
from quire.kvcache.transfer.tls_socket import TlsSocket

HANDSHAKE_SECONDS = 10.0
_GREETING = b"quire-kv-%d\n" % VERSION
_LENGTH = struct.Struct("<I")
_MOST_BYTES = 64 << 20
"""Of one message without blocks; the names of a million tokens take two million."""
_MOST_VIEWS = 1024
"""Pieces of memory that the system sends in one call (IOV_MAX)."""


_T = TypeVar("_T")


class TransferRefused(QuireError):
    """The other side is not who it should be, or its KV is of no use."""


class _Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    pass


class Hello(_Message, frozen=True):
    """Said by whoever fetches, after the proofs."""

    format: KVFormat
    reads: bool = False
    """Whether it would rather read blocks out of the sender's memory, by NIXL."""
    checks: bool = True
    """Whether it looks at checksums of what it reads: those of a GPU's memory cannot be had."""


class Readable(msgspec.Struct, frozen=True, array_like=True):
    """The memory of a sender's blocks, as NIXL lets others read it."""

    agent: bytes
    """What NIXL needs to reach whoever offers it."""
    place: BlockPlace


class Welcome(_Message, frozen=True):
    """The formats agree. Over a unix socket a file descriptor may come with it: memory that both sides map."""

    slot_bytes: int = 0
    num_slots: int = 0
    """Of that memory; 0: bytes of blocks follow the messages that tell of them."""
    readable: Readable | None = None
    """Neither: messages name blocks of this memory."""


class Unwelcome(_Message, frozen=True):
    """They do not."""

    why: str


class Want(_Message, frozen=True):
    """Send the blocks of these names, as far as they are there."""

    number: int
    groups: list[int]
    names: list[bytes]
    until: str = ""
    """A request that computes them: those that are not there yet are sent as they come, until it is over."""


class Enough(_Message, frozen=True):
    """What has not been sent of a want is not needed any more."""

    number: int


class Taken(_Message, frozen=True):
    """What a slot held, or was lent under its number, is not needed any more."""

    slot: int


class Pieces(_Message, frozen=True):
    """Some blocks of a want. Their bytes are in a slot of the shared memory, follow, or are to be read."""

    number: int
    places: list[int]
    """In the order of the want's names."""
    checksum: int | None
    """Of all their bytes; None where it is not looked at."""
    slot: int = -1
    by_plane: bool = False
    """Whether the bytes of all in their first plane come first, then those in the second; or else block after block."""
    blocks: list[int] = []
    """Which to read, lent until they are taken."""


class Kept(_Message, frozen=True):
    """What was lent under a number stayed as it was until it was taken."""

    slot: int


class Done(_Message, frozen=True):
    """No more comes of a want."""

    number: int


ToSender = Hello | Want | Enough | Taken
ToFetcher = Welcome | Unwelcome | Pieces | Kept | Done
_TO_SENDER: msgspec.msgpack.Decoder[ToSender] = msgspec.msgpack.Decoder(ToSender)
_TO_FETCHER: msgspec.msgpack.Decoder[ToFetcher] = msgspec.msgpack.Decoder(ToFetcher)


def frame(message: ToSender | ToFetcher) -> bytes:
    data = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(data)) + data


def receive_to_sender(connection: socket.socket) -> ToSender:
    """Raises OSError or EOFError at the end of the connection, DecodeError where it cannot be read."""
    return _decoded(_TO_SENDER, _receive(connection))


def receive_to_fetcher(connection: socket.socket) -> ToFetcher:
    return _decoded(_TO_FETCHER, _receive(connection))


def receive_welcome(connection: socket.socket) -> tuple[ToFetcher, int | None]:
    """The first word of the sender, and the descriptor that came with it, if one did."""
    if connection.family != socket.AF_UNIX:
        return receive_to_fetcher(connection), None
    head, descriptors, _, _ = socket.recv_fds(connection, _LENGTH.size, 1)
    if not head:
        raise EOFError
    head += receive_bytes(connection, _LENGTH.size - len(head)) if len(head) < _LENGTH.size else b""
    message = _decoded(_TO_FETCHER, receive_bytes(connection, _size_of(head)))
    return message, descriptors[0] if descriptors else None


def send_welcome(connection: socket.socket, message: Welcome, descriptor: int | None = None) -> None:
    if descriptor is None:
        connection.sendall(frame(message))
        return
    data = frame(message)
    sent = socket.send_fds(connection, [data], [descriptor])
    connection.sendall(data[sent:])


def send_views(connection: socket.socket, views: Sequence[memoryview]) -> None:
    """Send memory from where it lies, in order."""
    if isinstance(connection, ssl.SSLSocket):
        for view in views:
            connection.sendall(view)
        return
    left = _Views(views)
    while left:
        left.done(connection.sendmsg(left.next()))


def receive_views(connection: socket.socket, views: Sequence[memoryview]) -> None:
    """Fill memory where it lies, in order."""
    if isinstance(connection, ssl.SSLSocket):
        for view in views:
            receive_into(connection, view)
        return
    left = _Views(views)
    while left:
        count, _, _, _ = connection.recvmsg_into(left.next(), 0, socket.MSG_WAITALL)
        if not count:
            raise EOFError
        left.done(count)


class _Views:
    """Pieces of memory that are sent or filled, as far as they are not yet."""

    def __init__(self, views: Sequence[memoryview]) -> None:
        self._left = [view for view in views if view.nbytes]
        self._first = 0

    def __bool__(self) -> bool:
        return self._first < len(self._left)

    def next(self) -> list[memoryview]:
        """As many as the system takes at once."""
        return self._left[self._first : self._first + _MOST_VIEWS]

    def done(self, count: int) -> None:
        """So many bytes of them are."""
        while self and count >= self._left[self._first].nbytes:
            count -= self._left[self._first].nbytes
            self._first += 1
        if count:
            self._left[self._first] = self._left[self._first].cast("B")[count:]


def receive_into(connection: socket.socket, target: memoryview) -> None:
    """Fill all of it."""
    while target.nbytes:
        count = connection.recv_into(target)
        if not count:
            raise EOFError
        target = target[count:]


def receive_bytes(connection: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    receive_into(connection, memoryview(data))
    return bytes(data)


def _receive(connection: socket.socket) -> bytes:
    return receive_bytes(connection, _size_of(receive_bytes(connection, _LENGTH.size)))


def _size_of(head: bytes) -> int:
    """Of the message that follows."""
    size: int = _LENGTH.unpack(head)[0]
    if size > _MOST_BYTES:
        raise TransferRefused(f"a message of {size} bytes is more than {_MOST_BYTES}")
    return size


def _decoded(decoder: msgspec.msgpack.Decoder[_T], data: bytes) -> _T:
    try:
        return decoder.decode(data)
    except UnicodeDecodeError as error:  # msgspec raises it for text, and for everything else its own
        raise msgspec.DecodeError(str(error)) from None


# -- who speaks ------------------------------------------------------------------------------------------------


def listen(address: str) -> tuple[socket.socket, str]:
    """A socket that listens at unix:///path or at tcp://host:port, and its address; port 0 picks a free one."""
    parts = urlsplit(address)
    if parts.scheme == "unix":
        Path(parts.path).unlink(missing_ok=True)
        server = socket.socket(socket.AF_UNIX)
        server.bind(parts.path)
    else:
        server = socket.create_server((parts.hostname or "", parts.port or 0), family=_family(parts.hostname))
        address = with_port(address, server.getsockname()[1])
    server.listen()
    return server, address


def connect(address: str, secret: bytes, ca_file: str | None = None) -> socket.socket:
    """Reach whoever sends KV at an address, and have it prove who it is; raises TransferRefused."""
    parts = urlsplit(address)
    try:
        connection = _unix(parts.path) if parts.scheme == "unix" else _tcp(parts, ca_file)
    except OSError as error:
        raise TransferRefused(f"{address} cannot be reached: {error.strerror or error}") from None
    try:
        prove_to_called(connection, _GREETING, secret, b"fetcher", b"sender")
    except (EOFError, OSError):
        connection.close()
        raise TransferRefused(f"{address} closed the connection; is its secret another one?") from None
    except SecretRefused as error:
        connection.close()
        raise TransferRefused(f"what answers at {address} cannot be trusted: {error}") from None
    return connection


def accept(connection: socket.socket, secret: bytes) -> None:
    """Have whoever connected prove that it may; raises TransferRefused, EOFError or OSError."""
    try:
        prove_to_caller(connection, _GREETING, secret, b"fetcher", b"sender")
    except SecretRefused:
        raise TransferRefused("an engine that does not know the secret was turned away") from None


def _unix(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(HANDSHAKE_SECONDS)
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


def _tcp(parts: SplitResult, ca_file: str | None) -> socket.socket:
    connection = socket.create_connection((parts.hostname or "", parts.port or 0), HANDSHAKE_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if parts.scheme != "tls":
        return connection
    try:
        context = ssl.create_default_context(cafile=ca_file)
        context.sslsocket_class = TlsSocket
        return context.wrap_socket(connection, server_hostname=parts.hostname)
    except OSError:
        connection.close()
        raise


def with_port(address: str, port: int) -> str:
    parts = urlsplit(address)
    return f"{parts.scheme}://{_bracketed(parts.hostname or '')}:{port}"


def with_host(address: str, host: str) -> str:
    """The address as others reach it: whoever listens on every address of its host cannot say by which it is known."""
    parts = urlsplit(address)
    if parts.scheme == "unix":
        return address
    if not host:
        raise ConfigError(f"{address} has no host")
    return f"{parts.scheme}://{_bracketed(host)}:{parts.port}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _family(host: str | None) -> socket.AddressFamily:
    return socket.AF_INET6 if host and ":" in host else socket.AF_INET
