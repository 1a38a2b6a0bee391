"""KVSender: sends blocks of this engine to others that ask for them by name.

Threads own the connections and the bytes; which block has a name is for the engine's thread, which looks at `wants`
between steps, hands over blocks that nobody writes meanwhile, and gets them back in `returned`.
"""

import logging
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Lock, Thread

import msgspec

from quire.core.carried_blocks import CarriedBlocks
from quire.kvcache.transfer.carriage import Carriage
from quire.kvcache.transfer.carrier import Outbound
from quire.kvcache.transfer.format import KVFormat, mismatch
from quire.kvcache.transfer.nixl_carrier import NixlMemory, NixlOut
from quire.kvcache.transfer.slot_carrier import SlotsOut
from quire.kvcache.transfer.stream_carrier import StreamOut
from quire.kvcache.transfer.tls_socket import TlsSocket
from quire.kvcache.transfer.wire import (
    HANDSHAKE_SECONDS,
    Done,
    Enough,
    Hello,
    Taken,
    TransferRefused,
    Unwelcome,
    Want,
    accept,
    frame,
    listen,
    receive_to_sender,
)

_Work = tuple[int, list[int], list[int]]
"""The number of a want, with places and blocks."""
_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class OpenWant:
    """What one engine asked for, as the engine's thread sees it."""

    line: "_Line"
    want: Want
    asked: float = field(default_factory=time.monotonic)
    num_sent: int = 0
    """Names that were looked at, in order."""
    was_seen: bool = False
    """Whether the request it waits for has been here."""
    is_cancelled: bool = False

    def send(self, places: list[int], blocks: list[int]) -> None:
        """These blocks, which come back by `returned`."""
        self.line.put((self.want.number, places, blocks))

    def done(self) -> None:
        self.line.put((self.want.number, [], []))


class KVSender:
    """Listens until it is closed."""

    def __init__(
        self,
        address: str,
        own: KVFormat,
        blocks: CarriedBlocks,
        secret: bytes,
        wake: Callable[[], None],
        tls: ssl.SSLContext | None = None,
        nixl: NixlMemory | None = None,
    ) -> None:
        """`wake` is called in other threads, when there is something in `wants`; `nixl` is for those who would rather
        read."""
        self.format = own
        self.wants: SimpleQueue[OpenWant] = SimpleQueue()
        self.returned: SimpleQueue[list[int]] = SimpleQueue()
        self.counts = Carriage()
        self.lock = Lock()
        self.blocks = blocks
        self.wake = wake
        self._secret = secret
        self._nixl = nixl
        self._tls = tls
        if tls is not None:
            tls.sslsocket_class = TlsSocket
        self._server, self.address = listen(address)
        self._lines: set[_Line] = set()
        self._is_closed = False
        Thread(target=self._accept, name="quire-kv-listen", daemon=True).start()

    def close(self) -> None:
        self._is_closed = True
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        with self.lock:
            lines = list(self._lines)
        for line in lines:
            line.close()

    def forget(self, line: "_Line") -> None:
        with self.lock:
            self._lines.discard(line)

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            Thread(target=self._greet, args=(connection,), name="quire-kv-line", daemon=True).start()

    def _greet(self, connection: socket.socket) -> None:
        connection.settimeout(HANDSHAKE_SECONDS)
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            accept(connection, self._secret)
            hello = receive_to_sender(connection)
            if not isinstance(hello, Hello):
                raise TransferRefused("an engine that did not say what it wants was turned away")
            why = mismatch(self.format, hello.format)
            if why is not None:
                connection.sendall(frame(Unwelcome(why)))
                raise TransferRefused(f"an engine that asked for KV was turned away: {why}")
            line = _Line(self, connection, self._outbound(connection, hello))
        except (TransferRefused, msgspec.DecodeError, EOFError, OSError) as error:
            self.counts.refuse()
            _log.warning("%s", str(error) or "an engine hung up; is its secret, or its version of quire, another one?")
            connection.close()
            return
        with self.lock:
            self._lines.add(line)
        if self._is_closed:  # while it was greeted
            line.close()
        line.read()

    def _outbound(self, connection: socket.socket, hello: Hello) -> Outbound:
        if hello.reads and self._nixl is not None:
            return NixlOut(connection, self._nixl, hello.checks)
        if self._nixl is not None:
            _log.info("KV goes to an engine over sockets: that engine was started without --kv-carrier nixl")
        if connection.family == socket.AF_UNIX:
            return SlotsOut(connection, self.blocks)
        return StreamOut(connection, self.blocks)


class _Line:
    """One connection: the thread that made it reads, another one writes."""

    def __init__(self, sender: KVSender, connection: socket.socket, out: Outbound) -> None:
        self._sender = sender
        self._connection = connection
        self._out = out
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        out.welcome()
        self._wants: dict[int, OpenWant] = {}
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._is_dead = False
        self._lock = Lock()
        connection.settimeout(None)
        Thread(target=self._write, name="quire-kv-send", daemon=True).start()

    def put(self, work: _Work) -> None:
        """In the engine's thread: blocks of a want, or none where that is all."""
        if not work[1]:
            self._wants.pop(work[0], None)
        with self._lock:
            if not self._is_dead:
                self._queue.put(work)
                return
        self._give_back(work[2])

    def close(self) -> None:
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def read(self) -> None:
        """Until the connection ends."""
        try:
            while True:
                message = receive_to_sender(self._connection)
                if isinstance(message, Want):
                    opened = self._wants[message.number] = OpenWant(self, message)
                    self._sender.wants.put(opened)
                    self._sender.wake()
                elif isinstance(message, Taken):
                    self._give_back(self._out.taken(message.slot))
                elif isinstance(message, Enough) and message.number in self._wants:
                    self._wants[message.number].is_cancelled = True
                    self._sender.wake()
        except (TransferRefused, msgspec.DecodeError) as error:
            _log.error("an engine that fetches KV is cut off: what it sent makes no sense (%s)", error)
        except (EOFError, OSError):
            pass
        finally:
            self._end()

    def _end(self) -> None:
        with self._lock:
            self._is_dead = True
        self.close()
        for opened in list(self._wants.values()):
            opened.is_cancelled = True
        self._give_back(self._out.end())
        self._queue.put(None)
        self._sender.forget(self)
        self._sender.wake()

    def _write(self) -> None:
        try:
            while (work := self._next()) is not None:
                self._send(*work)
        finally:
            self._connection.close()

    def _next(self) -> _Work | None:
        while True:
            try:
                return self._queue.get(timeout=self._out.rest())
            except Empty:
                continue
            except TransferRefused as error:
                self._cut_off(error)
                return self._queue.get()  # what is left is given back

    def _send(self, number: int, places: list[int], blocks: list[int]) -> None:
        """What is not carried is given back, whatever happens."""
        left = blocks
        try:
            if self._is_dead:
                return
            if not places:
                self._out.say(Done(number))
            while left:
                room, some = self._out.room(), left[: self._out.frame_blocks]
                begun, start = time.perf_counter(), len(blocks) - len(left)
                free = self._out.send(room, number, places[start : start + len(some)], some)
                left = left[len(some) :]
                self._give_back(free)
                self._sender.counts.carried(len(some), len(some) * self._sender.blocks.block_bytes, begun)
        except (EOFError, OSError):
            self.close()  # the reading thread notices
        except TransferRefused as error:
            self._cut_off(error)
        finally:
            self._give_back(left)

    def _cut_off(self, error: TransferRefused) -> None:
        if not self._is_dead:
            _log.error("an engine that fetches KV is cut off: %s", error)
        self.close()

    def _give_back(self, blocks: Sequence[int]) -> None:
        if blocks:
            self._sender.returned.put(list(blocks))
            self._sender.wake()
