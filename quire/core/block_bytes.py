"""BlockBytes: the bytes of whole KV blocks, copied beside the steps. Storage of each kind of worker offers them."""

from collections.abc import Sequence
from typing import Protocol


class BlockBytes(Protocol):
    """Threads may use it while steps run, for blocks that no step writes."""

    @property
    def block_bytes(self) -> int:
        """Of one block, all its layers."""

    def buffer(self, count: int) -> memoryview:
        """Host memory for so many blocks, of the kind that the device copies to and from fastest."""

    def read(self, blocks: Sequence[int], into: memoryview) -> None:
        """Copy blocks that finished steps have written."""

    def fence(self) -> object:
        """A mark behind all steps that were started so far; to be taken by the thread that starts them."""

    def write(self, blocks: Sequence[int], data: memoryview, behind: object) -> None:
        """Fill blocks, once the steps before the mark `behind` are over; returns when all of it is there."""
