"""BlockPool: hands out block ids, counts their references and remembers which free ones to reuse last.

Knows nothing of tokens, sequences or bytes. Every operation is O(1) per block.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable

NULL_BLOCK = 0
"""Never handed out: stands in tables for blocks that are not needed, and takes the writes of padded rows."""


class BlockPool:
    """Ids from 1 to `num_blocks`.

    A block is *used* (referenced), *cached* (free, but its content has a name and may be asked for again) or
    *blank* (free). Allocation takes blank blocks first, then the least recently used cached one, whose owner
    is told through `on_evict` before the block changes hands.
    """

    def __init__(self, num_blocks: int, on_evict: Callable[[int], None]) -> None:
        self.num_blocks = num_blocks
        self.refs = [0] * (num_blocks + 1)
        """References by block id; read freely, written only here."""
        self._named = bytearray(num_blocks + 1)
        self._blank = list(range(num_blocks, 0, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()  # least recently used first
        self._on_evict = on_evict

    @property
    def num_free(self) -> int:
        """Blocks that `allocate` can hand out, cached ones included."""
        return len(self._blank) + len(self._cached)

    @property
    def num_cached(self) -> int:
        return len(self._cached)

    def cached_blocks(self) -> list[int]:
        """The ids of cached blocks, the next to be evicted first."""
        return list(self._cached)

    @property
    def num_used(self) -> int:
        return self.num_blocks - self.num_free

    def allocate(self, count: int = 1) -> list[int]:
        """Take `count` free blocks, each with one reference. The caller has checked `num_free`."""
        blank, refs = self._blank, self.refs
        taken = []
        for _ in range(count):
            block = blank.pop() if blank else self._evict()
            refs[block] = 1
            taken.append(block)
        return taken

    def acquire(self, block: int) -> None:
        """One more reference; a cached block leaves the free ones."""
        if self.refs[block] == 0:
            del self._cached[block]
        self.refs[block] += 1

    def acquire_all(self, blocks: Iterable[int]) -> None:
        """One more reference each."""
        refs, cached = self.refs, self._cached
        for block in blocks:
            if refs[block] == 0:
                del cached[block]
            refs[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        """One reference less each. Blocks released first are evicted first, so callers pass a tail before its head."""
        refs = self.refs
        for block in blocks:
            refs[block] -= 1
            if refs[block] == 0:
                if self._named[block]:
                    self._cached[block] = None
                else:
                    self._blank.append(block)

    def name(self, block: int) -> None:
        """The block's content has a name now: when free it is kept as long as room allows."""
        self._named[block] = 1

    def unname(self, block: int) -> None:
        """The block's content is of no more use: when free it is the first to be taken."""
        self._named[block] = 0
        if self.refs[block] == 0:
            del self._cached[block]
            self._blank.append(block)

    def touch(self, block: int) -> None:
        """Mark a cached block as just used."""
        if self.refs[block] == 0:
            self._cached.move_to_end(block)

    def check(self) -> None:
        """Prove that free and used blocks are all blocks, each counted once."""
        free = [*self._blank, *self._cached]
        assert len(set(free)) == len(free), "a block is free twice"
        assert all(self.refs[block] == 0 for block in free), "a free block is referenced"
        assert all(count >= 0 for count in self.refs), "a block has negative references"
        used = sum(1 for count in self.refs[1:] if count)
        assert used + len(free) == self.num_blocks, f"{used} used + {len(free)} free is not {self.num_blocks}"
        assert self.refs[NULL_BLOCK] == 0, "the null block is referenced"
        assert all(self._named[block] for block in self._cached), "a cached block has no name"
        assert not any(self._named[block] for block in self._blank), "a blank block has a name"

    def _evict(self) -> int:
        block = next(iter(self._cached))
        self._on_evict(block)
        self._named[block] = 0
        del self._cached[block]
        return block
