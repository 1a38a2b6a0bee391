"""StagedBlocks: the bytes of blocks whose layers lie on several stages of a pipeline, as those of one device."""

from collections.abc import Sequence
from mmap import mmap
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quire.core.carried_blocks import CarriedBlocks

_STAGED_BLOCKS = 8


class StagedBlocks:
    """A block is what its first stage has of it, then what the next one has. One transfer at a time: stages are asked
    in turn, and each has one piece of memory to pass blocks in."""

    def __init__(self, stages: Sequence[CarriedBlocks]) -> None:
        self._stages = stages
        self.block_bytes = sum(stage.block_bytes for stage in stages)
        self._lock = Lock()
        self._staged = [memoryview(mmap(-1, _STAGED_BLOCKS * stage.block_bytes)) for stage in stages]
        for stage, staged in zip(stages, self._staged, strict=True):
            stage.lock(staged)

    def buffer(self, count: int) -> memoryview:
        return memoryview(bytearray(count * self.block_bytes))

    def lock(self, memory: memoryview) -> None:
        """Blocks are put together by the host, for which any memory is as good."""

    def fence(self) -> Any:
        return [stage.fence() for stage in self._stages]

    def read(self, blocks: Sequence[int], target: memoryview) -> None:
        whole = _array(target, len(blocks), self.block_bytes)
        with self._lock:
            first = 0
            for stage, memory in zip(self._stages, self._staged, strict=True):
                for start in range(0, len(blocks), _STAGED_BLOCKS):
                    some = blocks[start : start + _STAGED_BLOCKS]
                    staged = _array(memory, len(some), stage.block_bytes)
                    stage.read(some, memory[: staged.nbytes])
                    whole[start : start + len(some), first : first + stage.block_bytes] = staged
                first += stage.block_bytes

    def write(self, blocks: Sequence[int], source: memoryview, fence: Any) -> None:
        whole = _array(source, len(blocks), self.block_bytes)
        with self._lock:
            first = 0
            for stage, memory, own_fence in zip(self._stages, self._staged, fence, strict=True):
                for start in range(0, len(blocks), _STAGED_BLOCKS):
                    some = blocks[start : start + _STAGED_BLOCKS]
                    staged = _array(memory, len(some), stage.block_bytes)
                    staged[...] = whole[start : start + len(some), first : first + stage.block_bytes]
                    stage.write(some, memory[: staged.nbytes], own_fence)
                first += stage.block_bytes


def _array(memory: memoryview, count: int, size: int) -> NDArray[np.uint8]:
    return np.frombuffer(memory, np.uint8, count * size).reshape(count, size)
