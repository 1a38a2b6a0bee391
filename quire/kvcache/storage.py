"""KVStorage: the bytes of the blocks on one device, in planes as their kind has them, and moving whole blocks about.

Layer i of a group and layer i of any other group share one pair of tensors: they never use the same block.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from quire.config.resolved import KVLayout
from quire.core.errors import ConfigError
from quire.core.plan import Move
from quire.kvcache.swap import SwapSpace, cuda_lock, cuda_unlock, zeroed_on_touch
from quire.ops.upload import upload

_STAGED_BLOCKS = 32


class KVStorage:
    """Keys and values of every layer, on the device and, where there is a CPU tier, on the host.

    On the device a layer's blocks lie together, as its kernels read them; on the host a block's layers do, so that it
    moves in one piece.
    """

    def __init__(self, layout: KVLayout, dtype: torch.dtype, device: torch.device) -> None:
        depth = max(len(group.layers) for group in layout.groups)
        planes = _planes(layout)
        self._planes_of_layer = len(planes)
        block = (layout.block_size, *planes[0])
        self._device = _zeros((self._planes_of_layer * depth, layout.num_blocks + 1, *block), dtype, device)
        self._blocks = self._device.transpose(0, 1)
        """The same by block, as the host has them."""
        self._host: SwapSpace | None = None
        if layout.num_cpu_blocks:
            shape = (layout.num_cpu_blocks + 1, self._planes_of_layer * depth, *block)
            by_gpu = (cuda_lock, cuda_unlock) if device.type == "cuda" else ()
            self._host = SwapSpace(shape, dtype, *by_gpu)
        self._offload: torch.cuda.Stream | None = None
        """On a GPU what goes to the host goes beside the steps that follow: they need not wait for a slower bus."""
        if self._host is not None and device.type == "cuda":
            self._offload = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._places = {
            layer: (place, group) for group, spec in enumerate(layout.groups) for place, layer in enumerate(spec.layers)
        }

    def layer(self, index: int) -> tuple[tuple[Tensor, ...], int]:
        """What a layer keeps, by plane of its cache kind (keys, then values), and its KV group.

        Each plane is [blocks, block_size, *shape of one token's].
        """
        place, group = self._places[index]
        first = self._planes_of_layer * place
        return tuple(self._device[first : first + self._planes_of_layer]), group

    def move(self, swap_out: list[Move], swap_in: list[Move], copies: list[Move]) -> None:
        """A plan's moves, in the order that plans promise. On a GPU nothing here waits: what follows on it does."""
        if swap_out:
            self._to_host(swap_out)
        if swap_in:
            self._to_device(swap_in)
        for batch in _independent(copies):
            moved = self._blocks.index_select(0, self._ids([move.source for move in batch]))
            self._blocks.index_copy_(0, self._ids([move.target for move in batch]), moved)

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
            staged = self._device.new_empty((len(part), *self._host.shape[1:]))
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


def _planes(layout: KVLayout) -> tuple[tuple[int, ...], ...]:
    """What one token leaves in a layer, which is alike in all groups: they share their memory."""
    found = {group.planes for group in layout.groups}
    if len(found) != 1 or len({shape for planes in found for shape in planes}) != 1:
        raise ConfigError("the layers of this model keep caches of different shapes, which quire does not store yet.")
    return found.pop()


def _parts(moves: list[Move]) -> list[list[Move]]:
    """A few moves at a time: what is staged on its way takes memory that no plan has counted."""
    return [moves[start : start + _STAGED_BLOCKS] for start in range(0, len(moves), _STAGED_BLOCKS)]


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeroed, so that nothing a mask hides is ever NaN."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    return zeroed_on_touch(math.prod(shape) * dtype.itemsize).view(dtype).view(shape)


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
