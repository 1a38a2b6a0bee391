"""CarriedBlocks: the bytes of whole KV blocks, as whoever carries them from engine to engine sees them."""

from collections.abc import Sequence
from typing import Any, Protocol


class CarriedBlocks(Protocol):
    """A block's bytes are those of all its planes, one after the other, with the heads of all ranks.

    `read` and `write` run in threads beside the engine's own, and return when the bytes are there. Whoever calls them
    sees to it that nobody else writes these blocks, nor reads those that are written.
    """

    @property
    def block_bytes(self) -> int:
        """Of one block."""

    def lock(self, memory: memoryview) -> None:
        """Host memory from and to which blocks are to be copied again and again."""

    def fence(self) -> Any:
        """In the engine's thread: what the device was given so far. `write` waits for it, as that may still touch
        blocks that have changed hands."""

    def views(self, block: int) -> list[memoryview] | None:
        """A block where it lies, in order; None where only copies can be had."""

    def read(self, blocks: Sequence[int], target: memoryview) -> None:
        """Copy blocks to host memory, one after the other."""

    def write(self, blocks: Sequence[int], source: memoryview, fence: Any) -> None:
        """Copy blocks from host memory."""
