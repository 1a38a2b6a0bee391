"""CarriedBlocks: the bytes of whole KV blocks, as whoever carries them to other engines or to a disk sees them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


class CarriedBlocks(Protocol):
    """A block's bytes are those of all its planes, one after the other, with the heads of all ranks.

    `read` and `write` run in threads beside the engine's own, and return when the bytes are there. Whoever calls them
    sees to it that nobody else writes these blocks, nor reads those that are written.
    """

    @property
    def block_bytes(self) -> int:
        """Of one block."""

    def buffer(self, count: int) -> memoryview:
        """Host memory for so many blocks, of the kind that the device copies to and from fastest."""

    def lock(self, memory: memoryview) -> None:
        """Host memory from and to which blocks are to be copied again and again."""

    def fence(self) -> Any:
        """In the engine's thread: what the device was given so far. `write` waits for it, as that may still touch
        blocks that have changed hands."""

    def read(self, blocks: Sequence[int], target: memoryview) -> None:
        """Copy blocks to host memory, one after the other."""

    def write(self, blocks: Sequence[int], source: memoryview, fence: Any) -> None:
        """Copy blocks from host memory."""


@runtime_checkable
class NearBlocks(CarriedBlocks, Protocol):
    """Blocks in host memory of this process, plane by plane: blocks that lie side by side go as one piece.

    Nothing on a device may still touch them; bytes of several blocks are here those of all in their first plane, then
    in the second, and so on.
    """

    def views(self, blocks: Sequence[int]) -> list[memoryview]:
        """Blocks where they lie, to be read or written."""

    def gather(self, blocks: Sequence[int], target: memoryview) -> Iterator[memoryview]:
        """Copy blocks to host memory; each part of it that has come, in order, while the cache still has it."""

    def scatter(self, blocks: Sequence[int], source: memoryview) -> Iterator[memoryview]:
        """Copy blocks from host memory; each part of it, in order, before it is copied."""


@dataclass(frozen=True, slots=True)
class BlockPlace:
    """Where all blocks lie, for whoever reads and writes them by address."""

    address: int
    device: int | None
    """The number of the GPU; None: host memory."""
    num_planes: int
    num_blocks: int
    """The null block counted."""
    plane_bytes: int
    """Of one block in one plane; blocks of a plane lie side by side."""
    pitch: int
    """Bytes from plane to plane."""

    @property
    def num_bytes(self) -> int:
        return (self.num_planes - 1) * self.pitch + self.num_blocks * self.plane_bytes


@runtime_checkable
class AddressedBlocks(CarriedBlocks, Protocol):
    """Blocks that lie in one place, of this process or its GPU."""

    def place(self) -> BlockPlace:
        """Stays the same while the engine is awake."""

    def wait_for(self, fence: Any) -> None:
        """Until the device has done what a fence stands for: who writes by address waits first. The thread may use the
        device then; a fence of None stands for nothing."""
