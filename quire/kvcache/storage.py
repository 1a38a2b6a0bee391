"""KVStorage: the bytes of the blocks on one device, and moving whole blocks about.

Layer i of a group and layer i of any other group share one pair of tensors: they never use the same block.
"""

import math

import numpy as np
import torch
from torch import Tensor

from quire.config.resolved import KVLayout
from quire.core.plan import Move


class KVStorage:
    """Keys and values of every layer, on the device and, where there is a CPU tier, on the host."""

    def __init__(
        self, layout: KVLayout, num_kv_heads: int, head_dim: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        depth = max(len(group.layers) for group in layout.groups)
        shape = (layout.block_size, num_kv_heads, head_dim)

        host = torch.device("cpu")

        def tensors(num_blocks: int, where: torch.device, pinned: bool = False) -> list[Tensor]:
            return [_zeros((num_blocks + 1, *shape), dtype, where, pinned) for _ in range(2 * depth)]

        self._device = tensors(layout.num_blocks, device)
        self._host = tensors(layout.num_cpu_blocks, host, device.type == "cuda") if layout.num_cpu_blocks else []
        self._places = {
            layer: (place, group) for group, spec in enumerate(layout.groups) for place, layer in enumerate(spec.layers)
        }

    def layer(self, index: int) -> tuple[Tensor, Tensor, int]:
        """Keys and values of a layer, [blocks, block_size, kv_heads, head_dim], and its KV group."""
        place, group = self._places[index]
        return self._device[2 * place], self._device[2 * place + 1], group

    def move(self, swap_out: list[Move], swap_in: list[Move], copies: list[Move]) -> None:
        """A plan's moves, in the order that plans promise."""
        self._transfer(swap_out, self._device, self._host)
        self._transfer(swap_in, self._host, self._device)
        for batch in _independent(copies):
            self._transfer(batch, self._device, self._device)

    def _transfer(self, moves: list[Move], sources: list[Tensor], targets: list[Tensor]) -> None:
        if not moves:
            return
        source_ids = torch.tensor([move.source for move in moves])
        target_ids = torch.tensor([move.target for move in moves])
        for source, target in zip(sources, targets, strict=True):
            chosen = source[source_ids.to(source.device)]
            target[target_ids.to(target.device)] = chosen.to(target.device, non_blocking=True)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, pinned: bool) -> Tensor:
    """Zeroed, so that nothing a mask hides is ever NaN."""
    if device.type != "cpu" or pinned:
        return torch.zeros(shape, dtype=dtype, device=device, pin_memory=pinned)
    # pages that the system zeroes when they are first touched: half a machine's memory is there at once, and costs
    # nothing until it holds tokens (torch.zeros writes every byte)
    size = math.prod(shape) * dtype.itemsize
    return torch.from_numpy(np.zeros(size, dtype=np.uint8)).view(dtype).view(shape)


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
