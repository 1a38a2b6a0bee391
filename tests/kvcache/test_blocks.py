"""The pool against a plain model of it, and its order of reuse."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quire.kvcache.blocks import NULL_BLOCK, RETAINED_TURNS, BlockPool


def make_pool(num_blocks: int) -> tuple[BlockPool, list[int]]:
    evicted: list[int] = []
    return BlockPool(num_blocks, evicted.append), evicted


def test_blank_blocks_go_before_cached_ones_and_the_longest_unused_first():
    pool, evicted = make_pool(4)
    a, b, c = pool.allocate(3)
    for block in (a, b, c):
        pool.name(block)
    pool.release([c, a, b])
    assert pool.num_cached == 3
    [blank] = pool.allocate()
    assert blank not in {a, b, c}
    pool.touch(c)
    assert pool.allocate(3) == [a, b, c]
    assert evicted == [a, b, c]
    pool.check()


def test_a_cached_block_comes_back_with_its_content():
    pool, evicted = make_pool(1)
    [block] = pool.allocate()
    pool.name(block)
    pool.release([block])
    pool.acquire(block)
    assert (pool.num_free, evicted) == (0, [])
    pool.release([block])
    pool.unname(block)
    assert pool.num_cached == 0
    assert pool.allocate() == [block]
    assert evicted == []


def test_the_null_block_is_never_handed_out():
    pool, _ = make_pool(3)
    assert NULL_BLOCK not in pool.allocate(3)
    assert (pool.num_free, pool.num_used) == (0, 3)


class PoolModel(RuleBasedStateMachine):
    """References held by the test must be exactly those the pool counts."""

    @initialize(num_blocks=st.integers(1, 12))
    def start(self, num_blocks):
        self.named: set[int] = set()
        self.pool = BlockPool(num_blocks, self.named.discard)
        self.held: list[int] = []

    @rule(count=st.integers(1, 4))
    def allocate(self, count):
        if count <= self.pool.num_free:
            blocks = self.pool.allocate(count)
            assert not set(blocks) & set(self.held)
            self.held.extend(blocks)

    @rule(data=st.data())
    @precondition(lambda self: self.held or self.named)
    def acquire(self, data):
        block = data.draw(st.sampled_from(sorted({*self.held, *self.named})))
        self.pool.acquire(block)
        self.held.append(block)

    @rule(data=st.data())
    @precondition(lambda self: self.held)
    def release(self, data):
        block = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.pool.release([block])

    @rule(data=st.data())
    @precondition(lambda self: self.held)
    def name(self, data):
        block = data.draw(st.sampled_from(self.held))
        self.pool.name(block)
        self.named.add(block)

    @rule(data=st.data())
    @precondition(lambda self: self.named)
    def unname(self, data):
        block = data.draw(st.sampled_from(sorted(self.named)))
        self.pool.unname(block)
        self.named.discard(block)

    @invariant()
    def balanced(self):
        if hasattr(self, "pool"):
            self.pool.check()
            assert self.pool.num_used == len(set(self.held))


TestPoolModel = PoolModel.TestCase


def cached_pool(num_blocks: int, evicted: list[int]) -> BlockPool:
    """All blocks named and free, the first to be evicted first."""
    pool = BlockPool(num_blocks, evicted.append)
    for block in pool.allocate(num_blocks):
        pool.name(block)
        pool.release([block])
    return pool


def test_retained_blocks_go_after_all_others():
    evicted: list[int] = []
    pool = cached_pool(8, evicted)
    pool.retain(1)
    pool.retain(2)
    pool.retain(3)  # one too many: a quarter may be retained
    pool.check()
    assert [pool.is_retained(block) for block in (1, 2, 3)] == [True, True, False]
    pool.acquire(2)
    pool.release([2])
    pool.allocate(8)
    assert evicted == [3, 4, 5, 6, 7, 8, 1, 2]
    pool.check()
    assert not pool.is_retained(1)


def test_retained_blocks_that_nobody_uses_go_in_the_end():
    evicted: list[int] = []
    pool = cached_pool(8, evicted)
    pool.retain(1)
    pool.retain(2)
    for turn in range(RETAINED_TURNS * 8 + 1):
        if turn == 16:
            pool.touch(1)  # someone used it
        [block] = pool.allocate()
        pool.name(block)
        pool.release([block])
        pool.check()
    assert evicted.count(2) == 1
    assert 1 not in evicted


def test_only_what_has_a_name_is_retained():
    pool = BlockPool(8, lambda block: None)
    [block] = pool.allocate()
    pool.retain(block)
    assert not pool.is_retained(block)
    pool.name(block)
    pool.retain(block)
    pool.unname(block)
    assert not pool.is_retained(block)
    pool.release([block])
    pool.check()


def test_blocks_taken_by_number_are_handed_out_no_more():
    pool, _ = make_pool(6)
    pool.take({2, 5})
    pool.check()
    assert pool.allocate(4) == [1, 3, 4, 6]
    pool.release([5])
    assert pool.allocate() == [5]
