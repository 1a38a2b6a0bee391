"""HostBlocks: the bytes of blocks that lie in host memory, as those of CPU engines do. No torch."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quire.config.dtypes import dtype_bytes
from quire.config.resolved import KVLayout
from quire.kvcache.storage_shape import StorageShape


class HostBlocks:
    """A CPU runs a step to its end before the engine's thread goes on, so there is nothing to wait for."""

    def __init__(self, memory: NDArray[np.uint8], layout: KVLayout) -> None:
        """`memory` is all of the device's blocks, as `StorageShape` has them."""
        shape = StorageShape(layout)
        self._planes = memory.reshape(*shape.shape[:2], -1)
        self.block_bytes = shape.num_planes * self._planes.shape[2]
        assert memory.nbytes == shape.num_elements * dtype_bytes(layout.dtype)

    def lock(self, memory: memoryview) -> None:
        """Host memory is as good as any."""

    def fence(self) -> Any:
        return None

    def views(self, block: int) -> list[memoryview] | None:
        return [memoryview(plane) for plane in self._planes[:, block]]

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
