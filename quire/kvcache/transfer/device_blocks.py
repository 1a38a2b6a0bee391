"""DeviceBlocks: the bytes of blocks on a GPU, copied to and from locked host memory on a stream beside the steps."""

import ctypes
import math
from collections.abc import Iterator, Sequence
from mmap import mmap
from typing import Any
from weakref import finalize

import torch
from torch import Tensor

from quire.kvcache.swap import PAGE, cuda_lock, cuda_unlock

_STAGED_BLOCKS = 32
"""Blocks that lie together on the device on their way, twice: the memory for them is in no plan."""


class DeviceBlocks:
    """`blocks` are all of the device's, [blocks, planes, ...], a view of the memory that kernels use."""

    def __init__(self, blocks: Tensor) -> None:
        self._blocks = blocks
        # one gathers while the other copies; before the steps, whose kernels leave no gap for a small one otherwise
        self._streams = [torch.cuda.Stream(blocks.device, priority=-1) for _ in range(2)]  # type: ignore[no-untyped-call]
        self.block_bytes = math.prod(blocks.shape[1:]) * blocks.dtype.itemsize

    def buffer(self, count: int) -> memoryview:
        pinned: memoryview = torch.empty(count * self.block_bytes, dtype=torch.uint8, pin_memory=True).numpy().data
        return pinned

    def lock(self, memory: memoryview) -> None:
        """Whole pages, of which a mapping consists, for as long as it is there; other memory is copied as it is, which
        is slower."""
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        if isinstance(memory.obj, mmap) and address % PAGE == 0 and cuda_lock(address, memory.nbytes):
            # the driver would take the next mapping at this address for this one
            finalize(memory.obj, cuda_unlock, address)

    def fence(self) -> Any:
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._blocks.device))
        return event

    def views(self, block: int) -> list[memoryview] | None:
        return None

    def read(self, blocks: Sequence[int], target: memoryview) -> None:
        staged = self._host(target, len(blocks))
        for ids, part in self._parts(blocks, staged, None):
            part.copy_(self._blocks.index_select(0, ids), non_blocking=True)

    def write(self, blocks: Sequence[int], source: memoryview, fence: Any) -> None:
        staged = self._host(source, len(blocks))
        for ids, part in self._parts(blocks, staged, fence):
            self._blocks.index_copy_(0, ids, part.to(self._blocks.device, non_blocking=True))

    def _parts(self, blocks: Sequence[int], staged: Tensor, fence: Any) -> Iterator[tuple[Tensor, Tensor]]:
        """Of the blocks and of their bytes on the host, as many at once as are staged, each on the stream that is then
        the current one; at the end all is done."""
        first, second = self._streams
        with torch.cuda.device(self._blocks.device):
            with torch.cuda.stream(first):
                if fence is not None:
                    first.wait_event(fence)
                ids = torch.tensor(list(blocks), dtype=torch.int64, device=self._blocks.device)
            second.wait_stream(first)
            try:
                for number, start in enumerate(range(0, len(blocks), _STAGED_BLOCKS)):
                    end = start + _STAGED_BLOCKS
                    with torch.cuda.stream(self._streams[number % 2]):
                        yield ids[start:end], staged[start:end]
            finally:
                first.synchronize()
                second.synchronize()

    def _host(self, memory: memoryview, count: int) -> Tensor:
        flat = torch.frombuffer(memory, dtype=torch.uint8, count=count * self.block_bytes)
        return flat.view(self._blocks.dtype).view(count, *self._blocks.shape[1:])
