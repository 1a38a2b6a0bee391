"""BlockPool: hands out block ids, counts their references and remembers which free ones to reuse last.

Knows nothing of tokens, sequences or bytes. Every operation but `take`, at a start, is O(1) per block.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable

LEAST_UNRETAINED = 4
"""One block in so many may be retained: hints of some must not take the cache from all others."""
RETAINED_TURNS = 4
"""A retained block that nobody uses goes like any other once the pool has been filled anew so many times."""
NULL_BLOCK = 0
"""Never handed out: stands in tables for blocks that are not needed, and takes the writes of padded rows."""


class BlockPool:
    """Ids from 1 to `num_blocks`.

    A block is *used* (referenced), *cached* (free, but its content has a name and may be asked for again) or
    *blank* (free). Allocation takes blank blocks first, then the least recently used cached one, whose owner
    is told through `on_evict` before the block changes hands. Cached blocks that someone asked to *retain* are taken
    after all others, unless nobody has used them for long.
    """

    def __init__(self, num_blocks: int, on_evict: Callable[[int], None]) -> None:
        self.num_blocks = num_blocks
        self.refs = [0] * (num_blocks + 1)
        """References by block id; read freely, written only here."""
        self._named = bytearray(num_blocks + 1)
        self._blank = list(range(num_blocks, 0, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()  # least recently used first
        self._retained: set[int] = set()
        self._retained_cached: OrderedDict[int, int] = OrderedDict()
        """Cached blocks among them, and how many evictions there had been when they were last used."""
        self._evictions = 0
        self._on_evict = on_evict

    @property
    def num_free(self) -> int:
        """Blocks that `allocate` can hand out, cached ones included."""
        return len(self._blank) + len(self._cached) + len(self._retained_cached)

    @property
    def num_cached(self) -> int:
        return len(self._cached) + len(self._retained_cached)

    def cached_blocks(self) -> list[int]:
        """The ids of cached blocks, the next to be evicted first."""
        return [*self._cached, *self._retained_cached]

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

    def take(self, blocks: Collection[int]) -> None:
        """Take these blocks, all of them blank, with one reference each; one pass over the others."""
        if blocks:
            self._blank = [block for block in self._blank if block not in blocks]
        for block in blocks:
            self.refs[block] = 1

    def acquire(self, block: int) -> None:
        """One more reference; a cached block leaves the free ones."""
        if self.refs[block] == 0:
            self._leave_cached(block)
        self.refs[block] += 1

    def acquire_all(self, blocks: Iterable[int]) -> None:
        """One more reference each."""
        refs, cached, retained = self.refs, self._cached, self._retained
        for block in blocks:
            if refs[block] == 0:
                if block in retained:
                    del self._retained_cached[block]
                else:
                    del cached[block]
            refs[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        """One reference less each. Blocks released first are evicted first, so callers pass a tail before its head."""
        refs = self.refs
        for block in blocks:
            refs[block] -= 1
            if refs[block] == 0:
                if not self._named[block]:
                    self._blank.append(block)
                elif block in self._retained:
                    self._retained_cached[block] = self._evictions
                else:
                    self._cached[block] = None

    def name(self, block: int) -> None:
        """The block's content has a name now: when free it is kept as long as room allows."""
        self._named[block] = 1

    def unname(self, block: int) -> None:
        """The block's content is of no more use: when free it is the first to be taken."""
        self._named[block] = 0
        if self.refs[block] == 0:
            self._leave_cached(block)
            self._blank.append(block)
        self._retained.discard(block)

    def retain(self, block: int) -> None:
        """Keep a block's content, which has a name, longer than that of others; a hint, where too many are kept so."""
        if self._named[block] and len(self._retained) < self.num_blocks // LEAST_UNRETAINED:
            if self.refs[block] == 0 and block not in self._retained:
                del self._cached[block]
                self._retained_cached[block] = self._evictions
            self._retained.add(block)

    def is_retained(self, block: int) -> bool:
        return block in self._retained

    def touch(self, block: int) -> None:
        """Mark a cached block as just used."""
        if self.refs[block] == 0:
            if block in self._retained:
                self._retained_cached[block] = self._evictions
                self._retained_cached.move_to_end(block)
            else:
                self._cached.move_to_end(block)

    def check(self) -> None:
        """Prove that free and used blocks are all blocks, each counted once."""
        free = [*self._blank, *self._cached, *self._retained_cached]
        assert len(set(free)) == len(free), "a block is free twice"
        assert all(self.refs[block] == 0 for block in free), "a free block is referenced"
        assert all(count >= 0 for count in self.refs), "a block has negative references"
        used = sum(1 for count in self.refs[1:] if count)
        assert used + len(free) == self.num_blocks, f"{used} used + {len(free)} free is not {self.num_blocks}"
        assert self.refs[NULL_BLOCK] == 0, "the null block is referenced"
        assert all(self._named[block] for block in self.cached_blocks()), "a cached block has no name"
        assert self._retained.isdisjoint(self._cached), "a block is retained and not"
        assert self._retained.issuperset(self._retained_cached), "a block is kept that nobody asked for"
        assert all(self._named[block] for block in self._retained), "a retained block has no name"
        assert not any(self._named[block] for block in self._blank), "a blank block has a name"

    def _leave_cached(self, block: int) -> None:
        if block in self._retained:
            del self._retained_cached[block]
        else:
            del self._cached[block]

    def _evict(self) -> int:
        block = self._next_to_go()
        self._evictions += 1
        self._on_evict(block)
        self._named[block] = 0
        self._leave_cached(block)
        self._retained.discard(block)
        return block

    def _next_to_go(self) -> int:
        if self._retained_cached:
            block, used = next(iter(self._retained_cached.items()))
            if not self._cached or self._evictions - used >= RETAINED_TURNS * self.num_blocks:
                return block
        return next(iter(self._cached))
