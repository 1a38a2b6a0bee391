"""KVFetcher: fetches blocks by name from other engines, into blocks of this one.

The engine's thread says what is to come where; threads of the connections receive, check and write, and tell by
`events` what has come. Several connections to an engine on another host share what is asked of it.
"""

import logging
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from mmap import mmap
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any
from zlib import crc32

import msgspec

from quire.core.carried_blocks import CarriedBlocks
from quire.kvcache.prefix import CachedBlock
from quire.kvcache.transfer.carriage import Carriage
from quire.kvcache.transfer.format import KVFormat
from quire.kvcache.transfer.shared_slots import SharedSlots
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
    connect,
    frame,
    receive_into,
    receive_to_fetcher,
    receive_welcome,
)

TCP_CONNECTIONS = 4
_RUN = 8
"""Names in a row that one connection is asked for: what is waited for comes in order, over all of them."""
_MOST_PIECES = 4096
"""Blocks in one message at most; a sender sends far fewer."""
_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Fetch:
    """What was asked for at once, of one engine."""

    number: int
    entries: list[CachedBlock]
    """Each has the block that its bytes are to come to."""
    until: str
    fence: Any
    num_open: int = 0
    """Entries of which nothing is known yet."""
    events: "SimpleQueue[tuple[CachedBlock, bool]]" = field(default_factory=SimpleQueue)
    """Entries, with whether they have come; each exactly once, and nobody writes to its block after that."""


class KVFetcher:
    """Of one engine, for all others."""

    def __init__(
        self,
        own: KVFormat,
        blocks: CarriedBlocks,
        secret: bytes,
        wake: Callable[[], None],
        ca_file: str | None = None,
    ) -> None:
        self.format = own
        self.blocks = blocks
        self.secret = secret
        self.ca_file = ca_file
        self.counts = Carriage()
        self.wake = wake
        self._lines: dict[str, list[_Line]] = {}
        self._next = 0

    def fetch(self, address: str, entries: list[CachedBlock], until: str = "") -> Fetch:
        """Ask the engine at an address for these; never waits. `until` is a request that computes them there."""
        fetch = Fetch(self._next, entries, until, self.blocks.fence(), len(entries))
        self._next += 1
        lines = self._lines.get(address)
        if lines is None:
            count = 1 if address.startswith("unix:") else TCP_CONNECTIONS
            lines = self._lines[address] = [_Line(self, address) for _ in range(count)]
        for place, line in enumerate(lines):
            starts = range(place * _RUN, len(entries), len(lines) * _RUN)
            mine = [entry for start in starts for entry in entries[start : start + _RUN]]
            if mine:
                line.ask(fetch, mine)
        return fetch

    def abandon(self, fetch: Fetch) -> None:
        """What has not come of it is not needed; what has not been told of it yet still is."""
        for lines in self._lines.values():
            for line in lines:
                line.abandon(fetch)

    def close(self) -> None:
        for lines in self._lines.values():
            for line in lines:
                line.close()


class _Line:
    """One connection, made when it is first needed and again after it was lost."""

    def __init__(self, fetcher: KVFetcher, address: str) -> None:
        self._fetcher = fetcher
        self._address = address
        self._lock = Lock()
        self._open: dict[int, tuple[Fetch, dict[int, CachedBlock]]] = {}
        """Fetches by number, with what has not come of them, by its place in what this line was asked for."""
        self._connection: socket.socket | None = None
        self._is_running = False

    def ask(self, fetch: Fetch, entries: list[CachedBlock]) -> None:
        with self._lock:
            self._open[fetch.number] = fetch, dict(enumerate(entries))
            if self._connection is not None:
                self._send(self._connection, _want(fetch, entries))
            elif not self._is_running:
                self._is_running = True
                Thread(target=self._run, name="quire-kv-fetch", daemon=True).start()

    def abandon(self, fetch: Fetch) -> None:
        with self._lock:
            if fetch.number in self._open and self._connection is not None:
                self._send(self._connection, Enough(fetch.number))

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                with suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)

    def _send(self, connection: socket.socket, message: Want | Enough | Taken) -> None:
        with suppress(OSError):  # the reading thread notices
            connection.sendall(frame(message))

    def _run(self) -> None:
        """Connect, ask for what is open, and receive until the connection ends."""
        connection: socket.socket | None = None
        slots: SharedSlots | None = None
        try:
            connection, slots = self._connect()
            with self._lock:
                self._connection = connection
                for fetch, entries in self._open.values():
                    self._send(connection, _want(fetch, list(entries.values())))
            self._receive(connection, slots)
        except TransferRefused as error:
            self._fetcher.counts.refuse()
            _log.warning("no KV comes from %s: %s", self._address, error)
        except (msgspec.DecodeError, ValueError, KeyError) as error:
            _log.error("the connection to %s is given up: what came cannot be read (%s)", self._address, error)
        except (EOFError, OSError):
            pass
        finally:
            if connection is not None:
                connection.close()
            self._lost()

    def _connect(self) -> tuple[socket.socket, SharedSlots | None]:
        fetcher = self._fetcher
        connection = connect(self._address, fetcher.secret, fetcher.ca_file)
        try:
            connection.settimeout(HANDSHAKE_SECONDS)
            connection.sendall(frame(Hello(fetcher.format)))
            welcome, descriptor = receive_welcome(connection)
            if isinstance(welcome, Unwelcome):
                raise TransferRefused(welcome.why)
            connection.settimeout(None)
            if descriptor is None:
                return connection, None
            slots = SharedSlots(welcome.slot_bytes, welcome.num_slots, descriptor)  # type: ignore[union-attr]
            slots.close_descriptor()
            fetcher.blocks.lock(slots.whole)
            return connection, slots
        except BaseException:
            connection.close()
            raise

    def _receive(self, connection: socket.socket, slots: SharedSlots | None) -> None:
        room = memoryview(bytearray())
        while True:
            message = receive_to_fetcher(connection)
            if isinstance(message, Done):
                self._done(message.number)
            elif isinstance(message, Pieces):
                begun, size = time.perf_counter(), len(message.places) * self._fetcher.blocks.block_bytes
                if not 0 < len(message.places) <= _MOST_PIECES or len(message.places) != len(message.checksums):
                    raise ValueError(f"{len(message.places)} blocks with {len(message.checksums)} checksums")
                if slots is not None:
                    memory = slots.slot(message.slot)[:size]
                else:
                    if room.nbytes < size:
                        room = memoryview(mmap(-1, size))
                        self._fetcher.blocks.lock(room)
                    memory = room[:size]
                    receive_into(connection, memory)
                self._take(message, memory, begun)
                if slots is not None:
                    with self._lock:
                        self._send(connection, Taken(message.slot))

    def _take(self, message: Pieces, memory: memoryview, begun: float) -> None:
        """Write what is whole, and tell of it."""
        fetch, entries = self._open[message.number]
        blocks, each = self._fetcher.blocks, self._fetcher.blocks.block_bytes
        sound: list[tuple[int, CachedBlock]] = []
        corrupt = 0
        for index, (place, checksum) in enumerate(zip(message.places, message.checksums, strict=True)):
            entry = entries.get(place)
            if entry is None:
                raise ValueError(f"block {place} was not asked for")
            if crc32(memory[index * each : (index + 1) * each]) == checksum:
                sound.append((index, entry))
            else:
                corrupt += 1
        if len(sound) == len(message.places):
            blocks.write([entry.block for _, entry in sound], memory, fetch.fence)
        else:
            _log.error("%d blocks from %s came with other bytes than were sent: not used", corrupt, self._address)
            for index, entry in sound:
                blocks.write([entry.block], memory[index * each : (index + 1) * each], fetch.fence)
        self._fetcher.counts.carried(len(sound), len(sound) * each, begun, corrupt)
        whole = {id(entry) for _, entry in sound}
        with self._lock:
            for place in message.places:
                entry = entries.pop(place)
                fetch.events.put((entry, id(entry) in whole))
        self._fetcher.wake()

    def _done(self, number: int) -> None:
        with self._lock:
            fetch, entries = self._open.pop(number)
            for entry in entries.values():
                fetch.events.put((entry, False))
        self._fetcher.wake()

    def _lost(self) -> None:
        with self._lock:
            self._connection = None
            self._is_running = False
            lost, self._open = list(self._open.values()), {}
        for fetch, entries in lost:
            for entry in entries.values():
                fetch.events.put((entry, False))
        self._fetcher.wake()


def _want(fetch: Fetch, entries: list[CachedBlock]) -> Want:
    names = [entry.name for entry in entries if entry.name is not None]
    return Want(fetch.number, [entry.group for entry in entries], names, fetch.until)
