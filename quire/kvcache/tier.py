"""Tier: one pool of blocks with the index of what they hold. The device is one, CPU memory another."""

from collections import deque
from collections.abc import Callable

from quire.kvcache.blocks import BlockPool
from quire.kvcache.prefix import CachedBlock, PrefixIndex


class Tier:
    """Keeps pool and index in step: a block is named in the pool exactly while the index has an entry for it."""

    def __init__(self, num_blocks: int, num_groups: int, on_evict: Callable[[CachedBlock], None]) -> None:
        self.index = PrefixIndex(num_groups)
        self.pool = BlockPool(num_blocks, self._evicted)
        self._on_evict = on_evict
        self.unsaved: deque[CachedBlock] | None = None
        """Full blocks in the order in which they got their names, for a lower tier to take; None: there is none."""

    def add(self, entry: CachedBlock) -> None:
        """Give a block's content a name, unless another block has that name already."""
        if entry.name is not None and self.index.find(entry.group, entry.name) is not None:
            return
        self.pool.name(entry.block)
        if self.unsaved is not None and entry.name is not None:
            self.unsaved.append(entry)
        for block in self.index.add(entry):
            self.pool.unname(block)

    def discard(self, block: int) -> None:
        """A block's content is no longer what its name says."""
        self.index.discard(block)
        self.pool.unname(block)

    def check(self) -> None:
        self.pool.check()
        self.index.check()

    def _evicted(self, block: int) -> None:
        self._on_evict(self.index.discard(block))
