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
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

import msgspec

from quire.core.carried_blocks import CarriedBlocks
from quire.kvcache.prefix import CachedBlock
from quire.kvcache.transfer.carriage import Carriage
from quire.kvcache.transfer.carrier import Inbound
from quire.kvcache.transfer.format import KVFormat
from quire.kvcache.transfer.nixl_carrier import NixlIn, NixlMemory
from quire.kvcache.transfer.slot_carrier import SlotsIn
from quire.kvcache.transfer.stream_carrier import StreamIn
from quire.kvcache.transfer.wire import (
    HANDSHAKE_SECONDS,
    Done,
    Enough,
    Hello,
    Kept,
    Pieces,
    Taken,
    TransferRefused,
    Unwelcome,
    Want,
    Welcome,
    connect,
    frame,
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
        nixl: NixlMemory | None = None,
    ) -> None:
        """With `nixl`, blocks are read out of the memory of engines that let others do so."""
        self.format = own
        self.blocks = blocks
        self.secret = secret
        self.ca_file = ca_file
        self.nixl = nixl
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
        self._taken: dict[int, list[tuple[Fetch, CachedBlock, bool]]] = {}
        """What was read and is only known to have come with the sender's word, by the number it was lent under."""
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
            if self._connection is not None:
                if fetch.number in self._open:
                    self._send(self._connection, Enough(fetch.number))
                return
            _, entries = self._open.pop(fetch.number, (fetch, {}))
        self._tell([(fetch, entry, False) for entry in entries.values()])  # nothing was asked for yet

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
        inbound: Inbound | None = None
        try:
            connection = connect(self._address, self._fetcher.secret, self._fetcher.ca_file)
            inbound = self._inbound(connection)
            with self._lock:
                self._connection = connection
                for fetch, entries in self._open.values():
                    self._send(connection, _want(fetch, list(entries.values())))
            self._receive(connection, inbound)
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
            if inbound is not None:
                inbound.close()
            self._lost()

    def _inbound(self, connection: socket.socket) -> Inbound:
        """Agree with the sender on how blocks come."""
        fetcher, nixl = self._fetcher, self._fetcher.nixl
        connection.settimeout(HANDSHAKE_SECONDS)
        connection.sendall(frame(Hello(fetcher.format, nixl is not None, nixl is None or nixl.checks)))
        welcome, descriptor = receive_welcome(connection)
        if isinstance(welcome, Unwelcome):
            raise TransferRefused(welcome.why)
        if not isinstance(welcome, Welcome):
            raise TransferRefused("it did not say how blocks come")
        connection.settimeout(None)
        if nixl is not None and welcome.readable is not None:
            _log.info("KV from %s is read with NIXL", self._address)
            return NixlIn(nixl, welcome.readable)
        if nixl is not None:
            _log.info("KV from %s comes over sockets: that engine was started without --kv-carrier nixl", self._address)
        if descriptor is not None:
            return SlotsIn(fetcher.blocks, fetcher.format.num_planes, welcome, descriptor)
        return StreamIn(connection, fetcher.blocks, fetcher.format.num_planes)

    def _receive(self, connection: socket.socket, inbound: Inbound) -> None:
        while True:
            message = receive_to_fetcher(connection)
            if isinstance(message, Done):
                self._done(message.number)
            elif isinstance(message, Kept):
                self._kept(message.slot)
            elif isinstance(message, Pieces):
                self._take(message, inbound)
                if message.slot >= 0:
                    with self._lock:
                        self._send(connection, Taken(message.slot))

    def _take(self, pieces: Pieces, inbound: Inbound) -> None:
        """Have the bytes of some blocks, and tell of those that are whole."""
        begun = time.perf_counter()
        fetch, entries = self._open[pieces.number]
        asked = [entries[place] for place in pieces.places]
        count = len(asked)
        if not 0 < count <= _MOST_PIECES or len(set(pieces.places)) != count:
            raise ValueError(f"{count} blocks, {len(set(pieces.places))} of them different")
        if pieces.slot in self._taken:
            raise ValueError(f"number {pieces.slot} is lent again before what was read under it is known to be right")
        is_sound = inbound.take(pieces, [entry.block for entry in asked], fetch.fence)
        if is_sound:
            self._fetcher.counts.carried(count, count * self._fetcher.blocks.block_bytes, begun)
        else:
            _log.error("%d blocks from %s came with other bytes than were sent: not used", count, self._address)
            self._fetcher.counts.carried(0, 0, begun, corrupt=count)
        told = [(fetch, entry, is_sound) for entry in asked]
        with self._lock:
            for place in pieces.places:
                del entries[place]
            if inbound.asks:
                self._taken[pieces.slot] = told
                return
        self._tell(told)

    def _kept(self, slot: int) -> None:
        with self._lock:
            told = self._taken.pop(slot)
        self._tell(told)

    def _tell(self, told: "list[tuple[Fetch, CachedBlock, bool]]") -> None:
        for fetch, entry, has_come in told:
            fetch.events.put((entry, has_come))
        self._fetcher.wake()

    def _done(self, number: int) -> None:
        with self._lock:
            fetch, entries = self._open.pop(number)
        self._tell([(fetch, entry, False) for entry in entries.values()])

    def _lost(self) -> None:
        with self._lock:
            self._connection = None
            self._is_running = False
            lost = [(fetch, entry, False) for fetch, entries in self._open.values() for entry in entries.values()]
            lost += [(fetch, entry, False) for taken in self._taken.values() for fetch, entry, _ in taken]
            self._open, self._taken = {}, {}
        self._tell(lost)


def _want(fetch: Fetch, entries: list[CachedBlock]) -> Want:
    names = [entry.name for entry in entries if entry.name is not None]
    return Want(fetch.number, [entry.group for entry in entries], names, fetch.until)
