"""Arithmetic of KV memory: bytes a token, layers cut into equal groups, blocks a sequence needs. Decides nothing."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from quire.config.resolved import KVGroup, KVLayout
from quire.core.errors import ConfigError

MOST_GROUPS = 8
"""A sequence keeps one block table a group, so groups stay few even where more of them would waste less."""


@dataclass(frozen=True, slots=True)
class KVShape:
    """KV of one rank before memory is divided: how big a block is and which layers share one."""

    block_size: int
    groups: tuple[KVGroup, ...]
    layers_per_group: int
    layer_token_bytes: int
    """K and V of one token in one layer."""
    bytes_per_token: int
    """One token over all layers, padding excluded."""

    @property
    def block_bytes(self) -> int:
        return self.layers_per_group * self.block_size * self.layer_token_bytes

    @property
    def padded_layers(self) -> int:
        """Layers' worth of room that no layer uses."""
        return self.layers_per_group * len(self.groups) - sum(len(group.layers) for group in self.groups)


def kv_heads_per_rank(num_kv_heads: int, tensor_parallel_size: int) -> int:
    """KV heads one rank stores; a head is replicated when there are more ranks than heads."""
    whole = num_kv_heads % tensor_parallel_size == 0 or tensor_parallel_size % num_kv_heads == 0
    if not whole:
        raise ConfigError(
            f"--tensor-parallel-size is {tensor_parallel_size}, but the model has {num_kv_heads} KV heads; use a size "
            f"that divides {num_kv_heads} or is a multiple of it."
        )
    return max(1, num_kv_heads // tensor_parallel_size)


def kv_shape(windows: Sequence[int | None], kv_heads: int, head_dim: int, itemsize: int, block_size: int) -> KVShape:
    """The KV of a rank that holds layers with these windows and `kv_heads` heads of each."""
    layer_token_bytes = 2 * kv_heads * head_dim * itemsize
    groups, layers_per_group = group_layers(windows)
    return KVShape(block_size, groups, layers_per_group, layer_token_bytes, len(windows) * layer_token_bytes)


def group_layers(windows: Sequence[int | None]) -> tuple[tuple[KVGroup, ...], int]:
    """Cut layers into groups of one window each and of equal size: the groups and that size.

    Of all sizes that leave at most `MOST_GROUPS` groups, the one that pads least; of equals, the largest.
    """
    kinds: dict[int | None, list[int]] = defaultdict(list)
    for layer, window in enumerate(windows):
        kinds[window].append(layer)
    counts = [len(layers) for layers in kinds.values()]
    allowed = max(MOST_GROUPS, len(counts))
    sizes = [size for size in range(1, max(counts) + 1) if _num_groups(counts, size) <= allowed]
    size = min(sizes, key=lambda size: (_num_groups(counts, size) * size, -size))
    groups = [
        KVGroup(tuple(layers[start : start + size]), window)
        for window, layers in kinds.items()
        for start in range(0, len(layers), size)
    ]
    return tuple(groups), size


def blocks_for(groups: Sequence[KVGroup], block_size: int, length: int, chunk: int = 1) -> int:
    """Blocks a sequence of `length` tokens holds at most while it grows by up to `chunk` tokens a step."""
    return sum(_group_blocks(group.window, block_size, length, chunk) for group in groups)


def most_blocks(groups: Sequence[KVGroup], block_size: int, length: int, chunk: int) -> int:
    """The same with one more a group, for the copy that a shared block may need before it is written."""
    return blocks_for(groups, block_size, length, chunk) + len(groups)


def longest_sequence(groups: Sequence[KVGroup], block_size: int, num_blocks: int, limit: int, chunk: int = 1) -> int:
    """Tokens of the longest sequence that can always run in `num_blocks`, up to `limit`; 0 when none can."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if most_blocks(groups, block_size, middle, chunk) <= num_blocks:
            low = middle
        else:
            high = middle - 1
    return low


def kv_tokens(kv: KVLayout) -> int:
    """Tokens that a layout's blocks hold when every group keeps all of them; windows leave room for more."""
    return kv.num_blocks // len(kv.groups) * kv.block_size


def stage_layers(num_layers: int, pipeline_parallel_size: int) -> list[range]:
    """The run of layers of each pipeline stage; where they do not divide, the first stages hold one more."""
    if pipeline_parallel_size > num_layers:
        raise ConfigError(
            f"--pipeline-parallel-size is {pipeline_parallel_size}, but the model has only {num_layers} layers; "
            f"use at most {num_layers}."
        )
    share, extra = divmod(num_layers, pipeline_parallel_size)
    starts = [stage * share + min(stage, extra) for stage in range(pipeline_parallel_size + 1)]
    return [range(start, end) for start, end in pairwise(starts)]


def _num_groups(counts: Sequence[int], size: int) -> int:
    return sum(-(-count // size) for count in counts)


def _group_blocks(window: int | None, block_size: int, length: int, chunk: int) -> int:
    whole = -(-length // block_size)
    if window is None:
        return whole
    # The window may begin, and the chunk end, in the middle of a block.
    return min(whole, -(-(window + chunk) // block_size) + 1)
