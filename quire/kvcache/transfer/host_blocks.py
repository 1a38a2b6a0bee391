"""HostBlocks: the bytes of blocks that lie in host memory, as those of CPU engines do. No torch."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quire.config.dtypes import dtype_bytes
from quire.config.resolved import KVLayout
from quire.core.carried_blocks import BlockPlace
from quire.kvcache.storage_shape import StorageShape

_PART_BYTES = 1 << 20
"""Copied at a time before they are checked, or the other way round: a core's own cache holds as much, and smaller parts
take as long again to be told of."""


class HostBlocks:
    """A CPU runs a step to its end before the engine's thread goes on, so there is nothing to wait for."""

    def __init__(self, memory: NDArray[np.uint8], layout: KVLayout) -> None:
        """`memory` is all of the device's blocks, as `StorageShape` has them."""
        shape = StorageShape(layout)
        self._planes = memory.reshape(*shape.shape[:2], -1)
        self._bytes = memory.data
        self.block_bytes = shape.num_planes * self._planes.shape[2]
        assert memory.nbytes == shape.num_elements * dtype_bytes(layout.dtype)

    def buffer(self, count: int) -> memoryview:
        return memoryview(bytearray(count * self.block_bytes))

    def lock(self, memory: memoryview) -> None:
        """Host memory is as good as any."""

    def fence(self) -> Any:
        return None

    def views(self, blocks: Sequence[int]) -> list[memoryview]:
        size, runs = self._planes.shape[2], _runs(blocks)
        return [
            self._bytes[plane + first * size : plane + (first + count) * size]
            for plane in range(0, self._bytes.nbytes, self._planes.strides[0])
            for first, count in runs
        ]

    def gather(self, blocks: Sequence[int], target: memoryview) -> Iterator[memoryview]:
        runs, staged = _runs(blocks), self._by_plane(target, len(blocks))
        for first, last in self._parts(len(blocks)):
            place = 0
            for block, count in runs:
                staged[first:last, place : place + count] = self._planes[first:last, block : block + count]
                place += count
            yield staged[first:last].reshape(-1).data

    def scatter(self, blocks: Sequence[int], source: memoryview) -> Iterator[memoryview]:
        runs, staged = _runs(blocks), self._by_plane(source, len(blocks))
        for first, last in self._parts(len(blocks)):
            yield staged[first:last].reshape(-1).data
            place = 0
            for block, count in runs:
                self._planes[first:last, block : block + count] = staged[first:last, place : place + count]
                place += count

    def place(self) -> BlockPlace:
        planes, blocks, size = self._planes.shape
        return BlockPlace(self._planes.ctypes.data, None, planes, blocks, size, self._planes.strides[0])

    def wait_for(self, fence: Any) -> None:
        """There is nothing to wait for."""

    def read(self, blocks: Sequence[int], target: memoryview) -> None:
        staged = self._staged(target, len(blocks))
        for place, block in enumerate(blocks):
            staged[place] = self._planes[:, block]

    def write(self, blocks: Sequence[int], source: memoryview, fence: Any) -> None:
        staged = self._staged(source, len(blocks))
        for place, block in enumerate(blocks):
            self._planes[:, block] = staged[place]

    def _staged(self, memory: memoryview, count: int) -> NDArray[np.uint8]:
        staged = np.frombuffer(memory, np.uint8, count * self.block_bytes)
        return staged.reshape(count, self._planes.shape[0], self._planes.shape[2])

    def _by_plane(self, memory: memoryview, count: int) -> NDArray[np.uint8]:
        """[planes, blocks, bytes]"""
        staged = np.frombuffer(memory, np.uint8, count * self.block_bytes)
        return staged.reshape(self._planes.shape[0], count, self._planes.shape[2])

    def _parts(self, count: int) -> Iterator[tuple[int, int]]:
        """The first plane, and that behind the last, of as much of so many blocks as is copied at a time."""
        num_planes, size = self._planes.shape[0], count * self._planes.shape[2]
        step = max(1, _PART_BYTES // size)
        return ((first, min(first + step, num_planes)) for first in range(0, num_planes, step))


def _runs(blocks: Sequence[int]) -> list[tuple[int, int]]:
    """First block and number of those that lie side by side, in order."""
    runs: list[tuple[int, int]] = []
    for block in blocks:
        if runs and block == sum(runs[-1]):
            runs[-1] = runs[-1][0], runs[-1][1] + 1
        else:
            runs.append((block, 1))
    return runs
