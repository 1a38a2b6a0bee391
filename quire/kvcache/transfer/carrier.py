"""Carriers: the ways in which bytes of blocks go over one connection, seen from its two ends."""

from collections.abc import Sequence
from typing import Any, Protocol

from quire.kvcache.transfer.wire import Done, Kept, Pieces

FRAME_BYTES = 4 << 20
"""Of blocks that go together: few enough that the other side copies one frame while the next is on its way."""
STALLED_SECONDS = 60.0
"""Who takes nothing for so long is cut off: blocks that wait for it are of use to others."""


class Outbound(Protocol):
    """The end that sends. One thread sends; another, which reads from the connection, says what was taken."""

    @property
    def frame_blocks(self) -> int:
        """That go together at most."""

    def welcome(self) -> None:
        """Tell the other side that its format is right, and what it has to know."""

    def say(self, message: Done | Kept) -> None:
        """In either thread."""

    def room(self) -> int:
        """A number for the next blocks to go under, once one is free; raises EOFError or TransferRefused."""

    def send(self, room: int, number: int, places: list[int], blocks: list[int]) -> Sequence[int]:
        """Blocks of a want; those that may be given back at once. What is left is kept until it is taken.

        Raises EOFError or OSError where the connection is over; then none is kept.
        """

    def taken(self, slot: int) -> Sequence[int]:
        """Blocks to give back, now that the other side has what was sent under a number; raises TransferRefused."""

    def rest(self) -> float:
        """When there is nothing to send: seconds after which to call again. Raises TransferRefused where the other
        side has taken nothing for too long."""

    def end(self) -> Sequence[int]:
        """The connection is over, and nothing will be taken any more: what is left to give back."""


class Inbound(Protocol):
    """The end that fetches, in one thread."""

    @property
    def asks(self) -> bool:
        """Whether blocks count as come only when the sender says that it has kept them until they were read."""

    def take(self, pieces: Pieces, blocks: list[int], fence: Any) -> bool:
        """Have the bytes that a message tells of in these blocks; whether they are those that were sent. If not, the
        blocks may hold anything.

        Raises EOFError, OSError or TransferRefused where the connection is over, ValueError where it makes no sense.
        """

    def close(self) -> None:
        """The connection is over."""
