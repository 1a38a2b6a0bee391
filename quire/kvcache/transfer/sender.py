"""KVSender: sends blocks of this engine to others that ask for them by name.

Threads own the connections and the bytes; which block has a name is for the engine's thread, which looks at `wants`
between steps, hands over blocks that nobody writes meanwhile, and gets them back in `returned`.
"""

import logging
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from mmap import mmap
from queue import SimpleQueue
from threading import Lock, Thread
from zlib import crc32

import msgspec

from quire.core.carried_blocks import CarriedBlocks
from quire.kvcache.transfer.carriage import Carriage
from quire.kvcache.transfer.format import KVFormat, mismatch
from quire.kvcache.transfer.shared_slots import SharedSlots
from quire.kvcache.transfer.tls_socket import TlsSocket
from quire.kvcache.transfer.wire import (
    HANDSHAKE_SECONDS,
    Done,
    Enough,
    Hello,
    Pieces,
    Taken,
    TransferRefused,
    Unwelcome,
    Want,
    Welcome,
    accept,
    frame,
    listen,
    receive_to_sender,
    send_views,
    send_welcome,
)

FRAME_BYTES = 4 << 20
"""Of blocks that go together: few enough that the other side copies one frame while the next is on its way."""
NUM_SLOTS = 4
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
    ) -> None:
        """`wake` is called in other threads, when there is something in `wants`."""
        self.format = own
        self.wants: SimpleQueue[OpenWant] = SimpleQueue()
        self.returned: SimpleQueue[list[int]] = SimpleQueue()
        self.counts = Carriage()
        self.lock = Lock()
        self.blocks = blocks
        self.wake = wake
        self._secret = secret
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
            line = _Line(self, connection)
        except (TransferRefused, msgspec.DecodeError, EOFError, OSError) as error:
            self.counts.refuse()
            _log.warning("%s", str(error) or "an engine that did not prove itself in time was turned away")
            connection.close()
            return
        with self.lock:
            self._lines.add(line)
        line.read()


class _Line:
    """One connection: the thread that made it reads, another one writes."""

    def __init__(self, sender: KVSender, connection: socket.socket) -> None:
        self._sender = sender
        self._connection = connection
        self._frame_blocks = max(1, FRAME_BYTES // sender.blocks.block_bytes)
        frame_bytes = self._frame_blocks * sender.blocks.block_bytes
        self._slots: SharedSlots | None = None
        self._staged: memoryview | None = None
        if connection.family == socket.AF_UNIX:
            self._slots = slots = SharedSlots(frame_bytes, NUM_SLOTS)
            sender.blocks.lock(slots.whole)
            send_welcome(connection, Welcome(frame_bytes, NUM_SLOTS), slots.descriptor)
            slots.close_descriptor()
        else:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            send_welcome(connection, Welcome(), None)
        self._wants: dict[int, OpenWant] = {}
        self._queue: SimpleQueue[tuple[int, list[int], list[int]] | None] = SimpleQueue()
        self._is_dead = False
        self._lock = Lock()
        connection.settimeout(None)
        Thread(target=self._write, name="quire-kv-send", daemon=True).start()

    def put(self, work: tuple[int, list[int], list[int]]) -> None:
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
                elif isinstance(message, Taken) and self._slots is not None:
                    self._slots.free.put(message.slot)
                elif isinstance(message, Enough) and message.number in self._wants:
                    self._wants[message.number].is_cancelled = True
                    self._sender.wake()
        except (TransferRefused, msgspec.DecodeError) as error:
            _log.error("an engine that fetches KV is cut off: what it sent cannot be read (%s)", error)
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
        if self._slots is not None:
            self._slots.free.put(-1)  # whoever waits for one
        self._queue.put(None)
        self._sender.forget(self)
        self._sender.wake()

    def _write(self) -> None:
        try:
            while (work := self._queue.get()) is not None:
                number, places, blocks = work
                try:
                    if not self._is_dead:
                        self._send(number, places, blocks)
                except (EOFError, OSError):
                    self.close()  # the reading thread notices
                finally:
                    self._give_back(blocks)
        finally:
            self._connection.close()

    def _send(self, number: int, places: list[int], blocks: list[int]) -> None:
        if not places:
            self._connection.sendall(frame(Done(number)))
        for start in range(0, len(places), self._frame_blocks):
            end = start + self._frame_blocks
            slot = -1 if self._slots is None else self._slots.free.get()
            begun = time.perf_counter()
            if self._slots is None:
                size = self._send_bytes(number, places[start:end], blocks[start:end])
            elif slot >= 0:
                size = self._share(self._slots, slot, number, places[start:end], blocks[start:end])
            else:
                raise EOFError
            self._sender.counts.carried(len(places[start:end]), size, begun)

    def _share(self, slots: SharedSlots, slot: int, number: int, places: list[int], blocks: list[int]) -> int:
        memory, each = slots.slot(slot), self._sender.blocks.block_bytes
        self._sender.blocks.read(blocks, memory)
        checksums = [crc32(memory[place * each : (place + 1) * each]) for place in range(len(blocks))]
        self._connection.sendall(frame(Pieces(number, places, checksums, slot)))
        return len(blocks) * each

    def _send_bytes(self, number: int, places: list[int], blocks: list[int]) -> int:
        """From where they lie, where that is host memory."""
        views, checksums = self._views(blocks)
        head = memoryview(frame(Pieces(number, places, checksums)))
        send_views(self._connection, [head, *views])
        return sum(view.nbytes for view in views)

    def _views(self, blocks: list[int]) -> tuple[list[memoryview], list[int]]:
        source = self._sender.blocks
        views: list[memoryview] = []
        checksums: list[int] = []
        for place, block in enumerate(blocks):
            planes = source.views(block)
            if planes is None:
                planes = [self._copy(place, block)]
            checksum = 0
            for plane in planes:
                checksum = crc32(plane, checksum)
            views += planes
            checksums.append(checksum)
        return views, checksums

    def _copy(self, place: int, block: int) -> memoryview:
        each = self._sender.blocks.block_bytes
        if self._staged is None:
            self._staged = memoryview(mmap(-1, self._frame_blocks * each))
            self._sender.blocks.lock(self._staged)
        part = self._staged[place * each : (place + 1) * each]
        self._sender.blocks.read([block], part)
        return part

    def _give_back(self, blocks: list[int]) -> None:
        if blocks:
            self._sender.returned.put(blocks)
            self._sender.wake()
