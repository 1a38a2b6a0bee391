"""KVStorage: the bytes of the blocks on one device, in planes as their kind has them, and moving whole blocks about."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from quire.config.resolved import KVLayout
from quire.core.carried_blocks import CarriedBlocks
from quire.core.plan import Move
from quire.kvcache.storage_shape import StorageShape
from quire.kvcache.swap import SwapSpace, cuda_lock, cuda_unlock, zeroed_on_touch
from quire.kvcache.transfer.device_blocks import DeviceBlocks
from quire.kvcache.transfer.host_blocks import HostBlocks
from quire.ops.host_pages import give_back
from quire.ops.upload import upload

_STAGED_BLOCKS = 32


class KVStorage:
    """Keys and values of every layer, on the device and, where there is a CPU tier, on the host.

    On the device a layer's blocks lie together, as its kernels read them; on the host a block's layers do, so that it
    moves in one piece.
    """

    def __init__(
        self, layout: KVLayout, dtype: torch.dtype, device: torch.device, memory: Tensor | None = None
    ) -> None:
        """`memory` are the bytes of the device's blocks, where they are there already; see `StorageShape`."""
        self._layout = layout
        self._shape = shape = StorageShape(layout)
        if memory is None:
            memory = _zeros(shape.num_elements * dtype.itemsize, device)
        self._device = memory.view(dtype).view(shape.shape)
        moved = torch.uint8 if dtype.itemsize == 1 else dtype  # torch moves bytes about, but not every type of 8 bits
        self._blocks = self._device.view(moved).transpose(0, 1)
        """The same by block, as the host has them."""
        self._host: SwapSpace | None = None
        if layout.num_cpu_blocks:
            by_gpu = (cuda_lock, cuda_unlock) if device.type == "cuda" else ()
            self._host = SwapSpace((layout.num_cpu_blocks + 1, shape.num_planes, *shape.block), moved, *by_gpu)
        self._offload: torch.cuda.Stream | None = None
        """On a GPU what goes to the host goes beside the steps that follow: they need not wait for a slower bus."""
        if self._host is not None and device.type == "cuda":
            self._offload = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def layer(self, index: int) -> tuple[tuple[Tensor, ...], int]:
        """What a layer keeps, by plane of its cache kind (keys, then values), and its KV group.

        Each plane is [blocks, block_size, *shape of one token's].
        """
        planes = self._shape.planes(index)
        return tuple(self._device[planes.start : planes.stop]), self._shape.group(index)

    def carried_blocks(self) -> CarriedBlocks:
        """The device's blocks, for whoever carries them elsewhere."""
        if self._device.is_cuda:
            return DeviceBlocks(self._blocks)
        return HostBlocks(self._device.view(torch.uint8).flatten().numpy(), self._layout)

    def move(self, swap_out: list[Move], swap_in: list[Move], copies: list[Move]) -> None:
        """A plan's moves, in the order that plans promise. On a GPU nothing here waits: what follows on it does."""
        if swap_out:
            self._to_host(swap_out)
        if swap_in:
            self._to_device(swap_in)
        for batch in _independent(copies):
            moved = self._blocks.index_select(0, self._ids([move.source for move in batch]))
            self._blocks.index_copy_(0, self._ids([move.target for move in batch]), moved)

    def give_back(self) -> None:
        """Take no memory, on the device or the host, until `take_back`; what the blocks held is lost."""
        if self._host is not None:
            self._host.give_back()
        if self._device.is_cuda:
            self._device.untyped_storage().resize_(0)
        else:
            give_back(self._device.data_ptr(), self._device.nbytes)

    def take_back(self) -> None:
        """Empty blocks again."""
        if self._device.is_cuda:
            self._device.untyped_storage().resize_(self._device.nbytes)
            self._device.view(torch.uint8).zero_()

    # -- as BlockBytes has them ---------------------------------------------------------------------------------

    @property
    def block_bytes(self) -> int:
        return self._blocks[0].nbytes

    def buffer(self, count: int) -> memoryview:
        pinned = self._device.device.type == "cuda"
        return torch.empty(count * self.block_bytes, dtype=torch.uint8, pin_memory=pinned).numpy().data

    def read(self, blocks: Sequence[int], into: memoryview) -> None:
        with self._on_own_stream(None):
            self._as_blocks(into, len(blocks)).copy_(self._picked(blocks), non_blocking=True)

    def fence(self) -> "torch.cuda.Event | None":
        if self._device.device.type != "cuda":
            return None
        mark = torch.cuda.Event()  # type: ignore[no-untyped-call]
        mark.record(torch.cuda.current_stream())
        return mark

    def write(self, blocks: Sequence[int], data: memoryview, behind: object) -> None:
        with self._on_own_stream(behind):
            staged = self._as_blocks(data, len(blocks)).to(self._device.device, non_blocking=True)
            self._blocks.index_copy_(0, self._ids(list(blocks)), staged)

    def _picked(self, blocks: Sequence[int]) -> Tensor:
        return self._blocks.index_select(0, self._ids(list(blocks)))

    def _as_blocks(self, data: memoryview, count: int) -> Tensor:
        return torch.frombuffer(data, dtype=self._blocks.dtype).view(count, *self._blocks.shape[1:])

    @contextmanager
    def _on_own_stream(self, behind: object) -> Iterator[None]:
        """Within, a GPU works beside the steps, behind a mark; at the end all of it is done."""
        with torch.inference_mode():
            if self._device.device.type != "cuda":
                yield
                return
            stream = torch.cuda.Stream(self._device.device)  # type: ignore[no-untyped-call]
            if isinstance(behind, torch.cuda.Event):
                stream.wait_event(behind)
            with torch.cuda.stream(stream):
                yield
            stream.synchronize()

    def _to_host(self, moves: list[Move]) -> None:
        assert self._host is not None, "there is no CPU tier"
        for part in _parts(moves):
            staged = self._blocks.index_select(0, self._ids([move.source for move in part]))
            with self._beside_steps(staged):
                for block, move in zip(staged, part, strict=True):
                    self._host.block(move.target).copy_(block, non_blocking=True)

    def _to_device(self, moves: list[Move]) -> None:
        assert self._host is not None, "there is no CPU tier"
        if self._offload is not None:
            torch.cuda.current_stream().wait_stream(self._offload)  # what comes back may still be on its way out
        for part in _parts(moves):
            staged = self._blocks.new_empty((len(part), *self._host.shape[1:]))
            for block, move in zip(staged, part, strict=True):
                block.copy_(self._host.block(move.source), non_blocking=True)
            self._blocks.index_copy_(0, self._ids([move.target for move in part]), staged)

    @contextmanager
    def _beside_steps(self, staged: Tensor) -> Iterator[None]:
        """Within, a GPU does things after what it was given so far; what it is given later need not wait for them."""
        if self._offload is None:
            yield
            return
        self._offload.wait_stream(torch.cuda.current_stream())
        staged.record_stream(self._offload)
        with torch.cuda.stream(self._offload):
            yield

    def _ids(self, blocks: list[int]) -> Tensor:
        return upload(blocks, torch.int64, self._device.device)


def _parts(moves: list[Move]) -> list[list[Move]]:
    """A few moves at a time: what is staged on its way takes memory that no plan has counted."""
    return [moves[start : start + _STAGED_BLOCKS] for start in range(0, len(moves), _STAGED_BLOCKS)]


def _zeros(size: int, device: torch.device) -> Tensor:
    """Zeroed bytes, so that nothing a mask hides is ever NaN."""
    if device.type != "cpu":
        return torch.zeros(size, dtype=torch.uint8, device=device)
    return zeroed_on_touch(size)


def _independent(copies: list[Move]) -> list[list[Move]]:
    """Cut a list of copies where one reads or overwrites what an earlier one wrote; each part can run at once."""
    parts: list[list[Move]] = []
    written: set[int] = set()
    for move in copies:
        if not parts or move.source in written or move.target in written:
            parts.append([])
            written = set()
        parts[-1].append(move)
        written.add(move.target)
    return parts
