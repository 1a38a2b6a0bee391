"""RankedBlocks: the bytes of blocks whose heads lie on several ranks, as those of one device that has all of them."""

from collections.abc import Sequence
from math import prod
from mmap import mmap
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quire.config.dtypes import dtype_bytes
from quire.config.resolved import KVLayout
from quire.core.carried_blocks import CarriedBlocks
from quire.kvcache.storage_shape import StorageShape
from quire.kvcache.transfer.heads import cut_heads, owners
from quire.spec.rank import Place, heads_of

_STAGED_BLOCKS = 8


class RankedBlocks:
    """One transfer at a time: ranks are asked in turn, and each has one piece of memory to pass blocks in."""

    def __init__(self, parts: Sequence[CarriedBlocks], layout: KVLayout, num_heads: int) -> None:
        """`layout` is a rank's own; `num_heads` are the KV heads of the model: 1 for latents, which each rank keeps."""
        shape = StorageShape(layout)
        own_heads = len(heads_of(num_heads, Place(0, len(parts))))
        width = prod(shape.block[1:]) // own_heads * dtype_bytes(layout.dtype)
        self._parts = parts
        self._whole = (shape.num_planes, layout.block_size, num_heads, width)
        self._own = (shape.num_planes, layout.block_size, own_heads, width)
        self.block_bytes = prod(self._whole)
        self._lock = Lock()
        self._staged = [memoryview(mmap(-1, _STAGED_BLOCKS * prod(self._own))) for _ in parts]
        for part, staged in zip(parts, self._staged, strict=True):
            part.lock(staged)

    def buffer(self, count: int) -> memoryview:
        return memoryview(bytearray(count * self.block_bytes))

    def lock(self, memory: memoryview) -> None:
        """Blocks are put together by the host, for which any memory is as good."""

    def fence(self) -> Any:
        return [part.fence() for part in self._parts]

    def read(self, blocks: Sequence[int], target: memoryview) -> None:
        whole = _array(target, len(blocks), self._whole)
        with self._lock:
            for rank, heads in owners(self._whole[2], len(self._parts)):
                for start in range(0, len(blocks), _STAGED_BLOCKS):
                    some = blocks[start : start + _STAGED_BLOCKS]
                    staged = _array(self._staged[rank], len(some), self._own)
                    self._parts[rank].read(some, self._staged[rank][: staged.nbytes])
                    whole[start : start + len(some), ..., heads.start : heads.stop, :] = staged

    def write(self, blocks: Sequence[int], source: memoryview, fence: Any) -> None:
        whole, ranks = _array(source, len(blocks), self._whole), len(self._parts)
        with self._lock:
            for rank, part in enumerate(self._parts):
                for start in range(0, len(blocks), _STAGED_BLOCKS):
                    some = blocks[start : start + _STAGED_BLOCKS]
                    staged = _array(self._staged[rank], len(some), self._own)
                    staged[...] = cut_heads(whole[start : start + len(some)], rank, ranks)
                    part.write(some, self._staged[rank][: staged.nbytes], fence[rank])


def _array(memory: memoryview, count: int, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    return np.frombuffer(memory, np.uint8, count * prod(shape)).reshape(count, *shape)
