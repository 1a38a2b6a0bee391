"""DeviceBlocks: the bytes of blocks on a GPU, copied to and from locked host memory by the copy engines beside the
steps."""

import ctypes
import math
from collections.abc import Callable, Sequence
from mmap import mmap
from typing import Any
from weakref import finalize

import numpy as np
import torch
from torch import Tensor

from quire.core.carried_blocks import BlockPlace
from quire.kvcache.swap import PAGE, cuda_lock, cuda_unlock
from quire.kvcache.transfer.pitched_copy import LARGEST_PITCH, to_device, to_host

Copy = Callable[[int, int, int, int, int, int], None]


class DeviceBlocks:
    """`blocks` are all of the device's, [blocks, planes, ...], a view of the memory that kernels use."""

    def __init__(self, blocks: Tensor) -> None:
        self._blocks = blocks
        self._out = torch.cuda.Stream(blocks.device)  # type: ignore[no-untyped-call]
        self._in = torch.cuda.Stream(blocks.device)  # type: ignore[no-untyped-call]
        self.block_bytes = math.prod(blocks.shape[1:]) * blocks.dtype.itemsize
        self._planes = blocks.shape[1]
        self._row_bytes = self.block_bytes // self._planes
        """One plane of one block."""
        self._pitch = blocks.stride(1) * blocks.dtype.itemsize
        self._planes_at_once = self._planes if self._pitch <= LARGEST_PITCH else 1

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

    def place(self) -> BlockPlace:
        device = self._blocks.device.index
        number = torch.cuda.current_device() if device is None else device
        address, count = self._blocks.data_ptr(), self._blocks.shape[0]
        return BlockPlace(address, number, self._planes, count, self._row_bytes, self._pitch)

    def wait_for(self, fence: Any) -> None:
        torch.cuda.set_device(self._blocks.device)
        self._in.query()  # through torch: from here on this thread, too, has the device's context
        if fence is not None:
            fence.synchronize()

    def read(self, blocks: Sequence[int], target: memoryview) -> None:
        self._carry(blocks, target, to_host, self._out)

    def write(self, blocks: Sequence[int], source: memoryview, fence: Any) -> None:
        if fence is not None:
            self._in.wait_event(fence)
        self._carry(blocks, source, to_device, self._in)

    def _carry(self, blocks: Sequence[int], memory: memoryview, copy: Copy, stream: Any) -> None:
        """Each block with one copy of its planes; at the end all is done."""
        host = np.frombuffer(memory, np.uint8).ctypes.data
        device = self._blocks.data_ptr()
        with torch.cuda.device(self._blocks.device):
            stream.query()  # through torch: from here on this thread, too, has the device's context
            for place, block in enumerate(blocks):
                for plane in range(0, self._planes, self._planes_at_once):
                    copy(
                        host + place * self.block_bytes + plane * self._row_bytes,
                        device + plane * self._pitch + block * self._row_bytes,
                        self._pitch,
                        self._row_bytes,
                        min(self._planes_at_once, self._planes - plane),
                        stream.cuda_stream,
                    )
            stream.synchronize()
