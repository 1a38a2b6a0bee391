"""Blocks that the other engine reads out of this one's memory by itself, with NIXL: over RDMA networks, between GPUs,
or out of another process. The only file that knows NIXL.

The connection stays for what engines say to each other. A sender lends blocks under a number and names them; whoever
fetches reads them to where they belong and says that it has taken them; the sender says that it had kept them until
then. Only with that word do they count as come: a sender that took its fetcher for dead has given them to others.

NIXL's own connections prove nothing to anybody: it is for networks that no stranger reaches.
"""

import logging
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from socket import socket
from threading import Lock
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from quire.core.carried_blocks import AddressedBlocks, BlockPlace, NearBlocks
from quire.core.errors import ConfigError
from quire.kvcache.checksum import checksum_of
from quire.kvcache.transfer.carrier import STALLED_SECONDS
from quire.kvcache.transfer.lent_slots import LentSlots
from quire.kvcache.transfer.wire import Done, Kept, Pieces, Readable, TransferRefused, Welcome, frame, send_welcome

if TYPE_CHECKING:  # a front, which knows of exchanges, needs no arrays
    import numpy as np
    from numpy.typing import NDArray

_FRAME_BYTES = 16 << 20
"""Of blocks that are lent together: reading has a fixed cost, and nothing is copied on this side."""
_NUM_LENT = 4
_LOOKS = 5e-5
"""Seconds between two looks at a transfer: without a thread of its own, which would take a core, NIXL goes on only when
it is called."""
_AGAIN = 0.01
_BACKEND = "UCX"
_log = logging.getLogger(__name__)


class NixlMemory:
    """All blocks of this engine, which others may read, and the way to those of others. Any thread may call it."""

    def __init__(self, blocks: AddressedBlocks, agent: Any) -> None:
        """`agent` is NIXL's; it takes one caller at a time."""
        self.blocks = blocks
        self._agent = agent
        self._lock = Lock()
        self._users: Counter[str] = Counter()
        """Connections to each agent of another engine."""
        self._place = place = blocks.place()
        self._registered = agent.register_memory(
            [(place.address, place.num_bytes, place.device or 0, "")], _kind(place)
        )
        self._own = agent.prep_xfer_dlist("NIXL_INIT_AGENT", _descriptors(place), _kind(place))
        self._readable = Readable(agent.get_agent_metadata(), place)

    @property
    def checks(self) -> bool:
        """Whether checksums can be had: of host memory alone."""
        return isinstance(self.blocks, NearBlocks)

    def checksum(self, blocks: Sequence[int]) -> int | None:
        return checksum_of(self.blocks.views(blocks)) if isinstance(self.blocks, NearBlocks) else None

    def readable(self) -> Readable:
        """What others need to know."""
        return self._readable

    def advance(self) -> None:
        """Answer those that read here, as far as their network needs an answer; raises TransferRefused."""
        with self._lock, _as_refusal("NIXL does not go on"):
            self._agent.get_new_notifs()

    def reach(self, theirs: Readable) -> "_Reached":
        """Another engine's blocks, whose format is known to be ours; raises TransferRefused."""
        own, place = self._place, theirs.place
        if (own.num_planes, own.plane_bytes) != (place.num_planes, place.plane_bytes) or place.num_blocks < 1:
            raise TransferRefused("its blocks lie in other planes than ours, though the formats are the same")
        with self._lock, _as_refusal("it cannot be reached by NIXL"):
            told = self._agent.add_remote_agent(theirs.agent)
            name = told.decode() if isinstance(told, bytes) else told
            try:
                descriptors = self._agent.prep_xfer_dlist(name, _descriptors(place), _kind(place))
            except Exception:
                if not self._users[name]:
                    self._agent.remove_remote_agent(name)
                raise
            self._users[name] += 1
            return _Reached(name, descriptors, place.num_blocks)

    def leave(self, reached: "_Reached") -> None:
        """The last that reached an engine lets go of it."""
        with self._lock, suppress(TransferRefused), _as_refusal("it is gone"):
            self._users[reached.name] -= 1
            reached.descriptors.release()
            if not self._users[reached.name]:
                del self._users[reached.name]
                self._agent.remove_remote_agent(reached.name)

    def read(self, reached: "_Reached", theirs: Sequence[int], ours: Sequence[int]) -> None:
        """Copy blocks of another engine into blocks of this one. Raises TransferRefused where it is lost, and always
        returns only when nobody writes to these blocks any more."""
        from_blocks = _indices(theirs, reached.num_blocks, self._place.num_planes)
        to_blocks = _indices(ours, self._place.num_blocks, self._place.num_planes)
        with self._lock, _as_refusal("reading its memory failed"):
            reading = self._agent.make_prepped_xfer("READ", self._own, to_blocks, reached.descriptors, from_blocks)
        try:
            with self._lock, _as_refusal("reading its memory failed"):
                state = self._agent.transfer(reading)
            while state == "PROC":
                time.sleep(_LOOKS)
                with self._lock, _as_refusal("reading its memory failed"):
                    state = self._agent.check_xfer_state(reading)
        finally:
            self._end(reading)
        if state != "DONE":
            raise TransferRefused("reading its memory failed")

    def _end(self, reading: Any) -> None:
        """NIXL refuses to forget a transfer that goes on and that it cannot cancel."""
        while True:
            try:
                with self._lock:
                    self._agent.release_xfer_handle(reading)
                return
            except Exception as error:
                _log.debug("a transfer is not over yet: %s", error)
                time.sleep(_AGAIN)

    def close(self) -> None:
        """Nobody can read here any more; a transfer that goes on fails."""
        with self._lock, suppress(TransferRefused), _as_refusal("it was closed"):
            self._own.release()
            self._agent.deregister_memory(self._registered)


class _Reached:
    """Another engine's blocks."""

    def __init__(self, name: str, descriptors: Any, num_blocks: int) -> None:
        self.name = name
        self.descriptors = descriptors
        self.num_blocks = num_blocks


class NixlOut:
    """An Outbound: lends blocks."""

    def __init__(self, connection: socket, memory: NixlMemory, is_checked: bool) -> None:
        self.frame_blocks = max(1, _FRAME_BYTES // memory.blocks.block_bytes)
        self._connection = connection
        self._speaking = Lock()
        self._memory = memory
        self._is_checked = is_checked and memory.checks
        self._lent = LentSlots(_NUM_LENT)

    def welcome(self) -> None:
        send_welcome(self._connection, Welcome(readable=self._memory.readable()))

    def say(self, message: Pieces | Done | Kept) -> None:
        with self._speaking:
            self._connection.sendall(frame(message))

    def room(self) -> int:
        self._memory.blocks.wait_for(None)  # NIXL uses the device in this thread
        return self._lent.next(self.rest)

    def send(self, room: int, number: int, places: list[int], blocks: list[int]) -> Sequence[int]:
        checksum = self._memory.checksum(blocks) if self._is_checked else None
        self._lent.lend(room, blocks)
        with suppress(OSError):  # they come back with the end of the connection, which its reading thread notices
            self.say(Pieces(number, places, checksum, room, blocks=blocks))
        return ()

    def taken(self, slot: int) -> Sequence[int]:
        # the number is free from here on, and the other end is to hear so before it hears of what is lent under it next
        with self._speaking:
            blocks = self._lent.taken(slot)
            with suppress(OSError):
                self._connection.sendall(frame(Kept(slot)))
        return blocks

    def rest(self) -> float:
        if not self._lent:
            return STALLED_SECONDS
        self._lent.check_patience()
        self._memory.advance()
        return _LOOKS

    def end(self) -> Sequence[int]:
        return self._lent.end()


class NixlIn:
    """An Inbound: reads blocks."""

    asks = True

    def __init__(self, memory: NixlMemory, theirs: Readable) -> None:
        self._memory = memory
        self._reached = memory.reach(theirs)

    def take(self, pieces: Pieces, blocks: list[int], fence: Any) -> bool:
        if len(pieces.blocks) != len(blocks):
            raise ValueError(f"{len(pieces.blocks)} blocks to read for {len(blocks)}")
        self._memory.blocks.wait_for(fence)
        self._memory.read(self._reached, pieces.blocks, blocks)
        return pieces.checksum is None or self._memory.checksum(blocks) == pieces.checksum

    def close(self) -> None:
        self._memory.leave(self._reached)


@contextmanager
def _as_refusal(what: str) -> Iterator[None]:
    """NIXL's errors have no class in common to know them by."""
    try:
        yield
    except Exception as error:
        raise TransferRefused(f"{what}: {error}") from None


def _kind(place: BlockPlace) -> str:
    return "DRAM" if place.device is None else "VRAM"


def _descriptors(place: BlockPlace) -> "NDArray[np.uint64]":
    """A row for each plane: its first block's address and size, device, distance of blocks, their number."""
    import numpy as np

    size, device = place.plane_bytes, place.device or 0
    return np.array(
        [
            (place.address + plane * place.pitch, size, device, size, place.num_blocks)
            for plane in range(place.num_planes)
        ],
        np.uint64,
    )


def _indices(blocks: Sequence[int], num_blocks: int, num_planes: int) -> "NDArray[np.int32]":
    """Of a list of blocks in such descriptors. Plane by plane, so that blocks side by side are read as one."""
    import numpy as np

    wanted = np.array(blocks, np.int64)
    if not ((wanted > 0) & (wanted < num_blocks)).all():
        raise ValueError(f"blocks from {wanted.min()} to {wanted.max()} of {num_blocks}")
    return (np.arange(num_planes)[:, None] * num_blocks + wanted).ravel().astype(np.int32)


def require_nixl() -> None:
    """Raises ConfigError where it is not installed."""
    if find_spec("nixl") is None:
        raise ConfigError(
            "--kv-carrier is nixl, but NIXL is not installed; `pip install quire[nixl]` installs it, or use "
            "--kv-carrier sockets."
        )


def open_nixl(blocks: AddressedBlocks, *, on_one_host: bool) -> NixlMemory:
    """Let others read these; raises ConfigError. Engines of one host alone need no other device than its own."""
    require_nixl()
    if on_one_host:
        os.environ.setdefault("UCX_NET_DEVICES", "lo")  # or UCX listens at every address of the host
    raises = logging.raiseExceptions
    try:
        from nixl._api import nixl_agent, nixl_agent_config
    except ImportError as error:
        raise ConfigError(f"--kv-carrier is nixl, but NIXL cannot be imported: {error}") from None
    finally:
        logging.raiseExceptions = raises  # NIXL sets it for the whole process
    told = logging.getLogger("nixl")
    told.handlers.clear()  # it writes to stdout
    told.propagate = True
    told.setLevel(logging.WARNING)
    try:
        agent = nixl_agent(f"quire-{uuid4()}", nixl_agent_config(enable_prog_thread=False, backends=[_BACKEND]))
        return NixlMemory(blocks, agent)
    except Exception as error:  # NIXL's have no common class
        raise ConfigError(f"--kv-carrier is nixl, but NIXL does not start: {error}") from None
