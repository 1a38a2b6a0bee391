"""Arithmetic of KV memory: bytes a token, layers cut into equal groups, blocks a sequence needs. Decides nothing."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from quire.config.resolved import KVGroup, KVLayout
from quire.core.errors import ConfigError
from quire.spec.cache import CacheSpec, elements_per_token

MOST_GROUPS = 8
"""A sequence keeps one block table a group, so groups stay few even where more of them would waste less."""


@dataclass(frozen=True, slots=True)
class KVShape:
    """KV of one rank before memory is divided: how big a block is and which layers share one."""

    block_size: int
    groups: tuple[KVGroup, ...]
    page_token_bytes: int
    """Bytes of a block, over its tokens: enough for the layers of any group."""
    bytes_per_token: int
    """One token over all layers, padding excluded."""

    @property
    def block_bytes(self) -> int:
        return self.block_size * self.page_token_bytes

    @property
    def layers_per_group(self) -> int:
        return max(len(group.layers) for group in self.groups)

    @property
    def padded_layers(self) -> int:
        """Layers' worth of room that no layer uses."""
        each = self.bytes_per_token // sum(len(group.layers) for group in self.groups)
        return (self.page_token_bytes * len(self.groups) - self.bytes_per_token) // each


def kv_shape(caches: Sequence[CacheSpec], itemsize: int, block_size: int) -> KVShape:
    """The KV of a rank whose layers have these caches; layers that keep a state for each sequence have no pages."""
    sizes = [elements_per_token(cache) * itemsize for cache in caches]
    groups, page_token_bytes = group_layers(caches, sizes)
    return KVShape(block_size, groups, page_token_bytes, sum(sizes))


def group_layers(caches: Sequence[CacheSpec], sizes: Sequence[int]) -> tuple[tuple[KVGroup, ...], int]:
    """Cut layers into groups of one cache kind and window each, such that blocks of all groups are of one size: the
    groups, and that size over the tokens of a block. `sizes` are the bytes that a token takes in each layer.

    Of all sizes that leave at most `MOST_GROUPS` groups, the one that pads least; of equals, the largest.
    """
    kinds: dict[CacheSpec, list[int]] = defaultdict(list)
    for layer, cache in enumerate(caches):
        if sizes[layer]:
            kinds[cache].append(layer)
    if not kinds:
        raise ConfigError("no layer keeps anything of its tokens; quire runs models with some layers of attention.")
    size_of = {cache: sizes[layers[0]] for cache, layers in kinds.items()}
    fewest = max(size_of.values())
    pages = {size_of[cache] * count for cache, layers in kinds.items() for count in range(1, len(layers) + 1)}

    def num_groups(page: int) -> int:
        return sum(-(-len(layers) // (page // size_of[cache])) for cache, layers in kinds.items())

    allowed = max(MOST_GROUPS, len(kinds))
    fitting = [page for page in pages if page >= fewest and num_groups(page) <= allowed]
    page = min(fitting, key=lambda page: (num_groups(page) * page, -page))
    groups = [
        KVGroup(tuple(layers[start : start + page // size_of[cache]]), cache.window, cache.planes)
        for cache, layers in kinds.items()
        for start in range(0, len(layers), page // size_of[cache])
    ]
    return tuple(groups), page


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


def caches_of_stages(caches: Sequence[CacheSpec], stages: Sequence[range]) -> list[CacheSpec]:
    """What blocks must have room for, so that every stage's layers fit: of each kind of cache as many layers as the
    stage with the most of it has. Sequences have one table for all stages, so that these have the same groups.
    """
    if len(stages) == 1:
        return list(caches)
    counts = [Counter(caches[stage.start : stage.stop]) for stage in stages]
    return [cache for cache in dict.fromkeys(caches) for _ in range(max(count[cache] for count in counts))]


def layout_of_stage(layout: KVLayout, caches: Sequence[CacheSpec]) -> KVLayout:
    """How one stage, whose layers have these `caches`, keeps its part of the blocks that `layout` plans for all."""
    return replace(layout, groups=groups_of_stage(layout.groups, caches))


def groups_of_stage(groups: Sequence[KVGroup], caches: Sequence[CacheSpec]) -> tuple[KVGroup, ...]:
    """Which of one stage's layers each of the groups has that are planned for all stages."""
    waiting: dict[int | None, list[int]] = defaultdict(list)
    for layer, cache in enumerate(caches):
        if elements_per_token(cache):
            waiting[cache.window].append(layer)
    found = []
    for group in groups:
        layers = waiting[group.window]
        taken, waiting[group.window] = layers[: len(group.layers)], layers[len(group.layers) :]
        found.append(replace(group, layers=tuple(taken)))
    assert not any(waiting.values()), "blocks have room for every stage's layers"
    return tuple(found)


def _group_blocks(window: int | None, block_size: int, length: int, chunk: int) -> int:
    whole = -(-length // block_size)
    if window is None:
        return whole
    # The window may begin, and the chunk end, in the middle of a block.
    return min(whole, -(-(window + chunk) // block_size) + 1)
