"""DeviceBlocks: the bytes of blocks on a GPU, copied to and from locked host memory on a stream beside the steps."""

import ctypes
import math
from collections.abc import Sequence
from mmap import mmap
from typing import Any
from weakref import finalize

import torch
from torch import Tensor

from quire.kvcache.swap import PAGE, cuda_lock, cuda_unlock

_STAGED_BLOCKS = 32
"""Blocks that lie together on the device on their way: the memory for them is in no plan."""


class DeviceBlocks:
    """`blocks` are all of the device's, [blocks, planes, ...], a view of the memory that kernels use."""

    def __init__(self, blocks: Tensor) -> None:
        self._blocks = blocks
        self._stream = torch.cuda.Stream(blocks.device)  # type: ignore[no-untyped-call]
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
        with torch.cuda.device(self._blocks.device), torch.cuda.stream(self._stream):
            for start in range(0, len(blocks), _STAGED_BLOCKS):
                part = blocks[start : start + _STAGED_BLOCKS]
                gathered = self._blocks.index_select(0, self._ids(part))
                staged[start : start + len(part)].copy_(gathered, non_blocking=True)
            self._stream.synchronize()

    def write(self, blocks: Sequence[int], source: memoryview, fence: Any) -> None:
        staged = self._host(source, len(blocks))
        with torch.cuda.device(self._blocks.device), torch.cuda.stream(self._stream):
            if fence is not None:
                self._stream.wait_event(fence)
            for start in range(0, len(blocks), _STAGED_BLOCKS):
                part = blocks[start : start + _STAGED_BLOCKS]
                on_device = staged[start : start + len(part)].to(self._blocks.device, non_blocking=True)
                self._blocks.index_copy_(0, self._ids(part), on_device)
            self._stream.synchronize()

    def _ids(self, blocks: Sequence[int]) -> Tensor:
        return torch.tensor(list(blocks), dtype=torch.int64, device=self._blocks.device)

    def _host(self, memory: memoryview, count: int) -> Tensor:
        flat = torch.frombuffer(memory, dtype=torch.uint8, count=count * self.block_bytes)
        return flat.view(self._blocks.dtype).view(count, *self._blocks.shape[1:])
