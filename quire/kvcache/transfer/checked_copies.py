"""Copies of several blocks with their checksum, between where they lie and one piece of host memory.

From and to host memory they go plane by plane, so that blocks side by side are copied at once; a device is asked for
one block after the other, with all its planes. Either side takes what the other sends.
"""

from collections.abc import Sequence
from typing import Any

from quire.core.carried_blocks import CarriedBlocks, NearBlocks
from quire.kvcache.checksum import checksum, checksum_of
from quire.kvcache.transfer.wire import Pieces


def read_checked(source: CarriedBlocks, blocks: Sequence[int], target: memoryview) -> tuple[int, bool]:
    """The checksum of what was copied, and whether that is by plane."""
    if isinstance(source, NearBlocks):
        return checksum_of(source.gather(blocks, target)), True
    source.read(blocks, target)
    return checksum(target), False


def write_checked(
    target: CarriedBlocks, blocks: Sequence[int], source: memoryview, pieces: Pieces, fence: Any, num_planes: int
) -> bool:
    """Copy what a message tells of; whether it has its checksum."""
    if pieces.by_plane and isinstance(target, NearBlocks):
        return checksum_of(target.scatter(blocks, source)) == pieces.checksum
    if checksum(source) != pieces.checksum:
        return False
    target.write(blocks, by_block(source, len(blocks), num_planes) if pieces.by_plane else source, fence)
    return True


def by_block(source: memoryview, count: int, num_planes: int) -> memoryview:
    """Bytes that are by plane, block after block."""
    import numpy as np  # fronts, which import this, need no arrays

    planes = np.frombuffer(source, np.uint8).reshape(num_planes, count, -1)
    return np.ascontiguousarray(planes.transpose(1, 0, 2)).reshape(-1).data
