"""Attach, grow, share, swap and give back, one rule at a time. Every test ends with balanced books."""

import pytest

from quire.config.resolved import KVGroup, KVLayout
from quire.core.adapter import AdapterRef
from quire.core.prompt import MediaKey, Prompt
from quire.core.request import Request
from quire.core.sampling_params import SamplingParams
from quire.core.sequence import Sequence
from quire.kvcache.blocks import NULL_BLOCK
from quire.kvcache.host import MOST_KEPT_A_STEP
from quire.kvcache.invariants import check
from quire.kvcache.manager import KVManager

BLOCK = 4
FULL = (KVGroup((0,)),)


class Book:
    """A manager and sequences in it."""

    def __init__(self, num_blocks=32, num_cpu_blocks=0, groups=FULL, caching=True):
        self.kv = KVManager(KVLayout(BLOCK, num_blocks, num_cpu_blocks, groups, 1, 1, "float32"), caching)
        self.step = 0
        self.next_step()

    def next_step(self):
        self.step += 1
        self.kv.take_moves()
        self.kv.begin_step(self.step)
        check(self.kv)

    def sequence(self, tokens, media=(), adapter=None, **params) -> Sequence:
        request = Request(id="r", prompt=Prompt(tuple(tokens), media, adapter), params=SamplingParams(**params))
        self.last_id = getattr(self, "last_id", 0) + 1
        return Sequence(self.last_id, request, 0, max_total=1000)

    def open(self, tokens, media=(), **params) -> Sequence:
        """Attach a new sequence to whatever is cached."""
        seq = self.sequence(tokens, media, **params)
        self.kv.attach(seq, *self.kv.find(seq))
        check(self.kv)
        return seq

    def compute(self, seq, until=None) -> Sequence:
        """Compute all its tokens, or those before `until`, and name what is full."""
        until = len(seq.tokens) if until is None else until
        self.kv.grow(seq, until)
        seq.grant(until)
        if seq.num_computed >= seq.register_at:
            self.kv.register(seq)
        self.next_step()
        return seq

    def blocks(self, seq, group=0):
        return self.kv.table_from(seq, 0)[group]


@pytest.fixture(autouse=True)
def balanced(request):
    yield
    book = request.node.funcargs.get("book")
    if book is not None:
        check(book.kv)


@pytest.fixture
def book():
    return Book()


def test_a_finished_prompt_is_found_whole_blocks_and_then_token_by_token(book):
    first = book.compute(book.open(range(11)))
    blocks = book.blocks(first)
    book.kv.release(first)
    book.next_step()
    second = book.open([*range(10), 99, 98])
    # two whole blocks are shared; positions 8 and 9 are copied out of the begun third
    assert second.num_computed == 10
    assert book.blocks(second)[:2] == blocks[:2]
    assert book.blocks(second)[2] != blocks[2]
    _, _, copies = book.kv.take_moves()
    assert [(move.source, move.target) for move in copies] == [(blocks[2], book.blocks(second)[2])]
    assert book.kv.stats.tokens_saved == 10
    assert (book.kv.stats.tokens_saved, book.kv.stats.tokens_asked) == (10, 23)


def test_a_begun_block_that_nobody_uses_is_continued_in_place(book):
    first = book.compute(book.open(range(10)))
    blocks = book.blocks(first)
    book.kv.release(first)
    book.next_step()
    second = book.open(range(20))
    assert second.num_computed == 10
    assert book.blocks(second) == blocks
    assert book.kv.take_moves() == ([], [], [])


def test_at_least_one_token_is_always_computed(book):
    for length in (8, 9):
        first = book.compute(book.open(range(length)))
        book.kv.release(first)
        again = book.open(range(length))
        assert again.num_computed == length - 1
        book.kv.release(again)


def test_a_running_sequence_shares_its_full_blocks(book):
    first = book.compute(book.open(range(9)))
    second = book.open(range(9))
    assert second.num_computed == 8
    assert book.blocks(second) == book.blocks(first)[:2]
    assert book.kv.usage().shared_blocks == 2


def test_salts_adapters_and_opt_outs_do_not_share(book):
    book.kv.release(book.compute(book.open(range(9), cache_salt="a")))
    assert book.open(range(9)).num_computed == 0
    assert book.open(range(9), cache_salt="b").num_computed == 0
    assert book.open(range(9), cache_salt="a", adapter=AdapterRef("x", "/x", "1")).num_computed == 0
    assert book.open(range(9), cache_salt="a", use_prefix_cache=False).num_computed == 0
    assert book.open(range(9), cache_salt="a").num_computed == 8


def test_an_opted_out_sequence_leaves_nothing_behind(book):
    book.kv.release(book.compute(book.open(range(9), use_prefix_cache=False)))
    assert book.open(range(9)).num_computed == 0
    assert book.kv.device.pool.num_cached == 0


def test_media_of_the_same_placeholders_do_not_share(book):
    cat, dog = (MediaKey(5, b"cat"),), (MediaKey(5, b"dog"),)
    book.kv.release(book.compute(book.open(range(13), media=cat)))
    assert book.open(range(13), media=dog).num_computed == 4  # up to the block where the picture begins
    assert book.open(range(13), media=cat).num_computed == 12


def test_without_caching_nothing_is_kept():
    book = Book(caching=False)
    book.kv.release(book.compute(book.open(range(9))))
    assert book.open(range(9)).num_computed == 0


def test_eviction_takes_the_tail_of_a_sequence_first():
    book = Book(num_blocks=4)
    first = book.compute(book.open(range(16)))
    book.kv.release(first)
    book.compute(book.open([90, 91, 92, 93, 94]))  # needs two blocks
    assert book.kv.find(book.sequence(range(16)))[1].num_tokens == 8
    assert book.kv.stats.evictions == 2


def test_fork_shares_until_someone_writes(book):
    parent = book.compute(book.open(range(10)))
    child = book.sequence(range(10))
    child.fork_at(9)
    book.kv.fork(parent, child)
    check(book.kv)
    assert book.blocks(child) == book.blocks(parent)
    assert book.kv.cost_of_growth(child, 10) == 1
    changed = book.kv.grow(child, 10)
    assert changed == 2
    assert book.blocks(child)[:2] == book.blocks(parent)[:2]
    assert book.blocks(child)[2] != book.blocks(parent)[2]
    # the last one left in the block writes in place
    assert book.kv.cost_of_growth(parent, 11) == 0
    _, _, copies = book.kv.take_moves()
    assert len(copies) == 1


def test_fork_at_a_block_border_copies_nothing(book):
    parent = book.compute(book.open(range(8)))
    child = book.sequence(range(8))
    child.fork_at(8)
    book.kv.fork(parent, child)
    book.kv.grow(child, 9)
    assert book.kv.take_moves()[2] == []
    assert book.blocks(child)[:2] == book.blocks(parent)


def test_window_blocks_are_given_back_when_they_fall_out():
    book = Book(groups=(KVGroup((0,)), KVGroup((1,), window=6)))
    seq = book.compute(book.open(range(40)), until=20)
    book.kv.grow(seq, 24)
    check(book.kv)
    full, sliding = book.kv.table_from(seq, 0)
    assert NULL_BLOCK not in full
    # token 20 looks back to 15, which lies in block 3
    assert sliding[:3] == [NULL_BLOCK] * 3
    assert NULL_BLOCK not in sliding[3:]


def test_drafts_that_may_be_rejected_push_nothing_out_of_the_window():
    book = Book(groups=(KVGroup((0,), window=6),))
    seq = book.compute(book.open(range(10)))
    book.kv.grow(seq, 13)
    seq.grant(13)  # three drafts are being verified behind token 10
    seq.num_pending = 1
    book.kv.trim(seq)
    check(book.kv)
    # token 10 is certain to come next and looks back to 5, which lies in block 1
    assert book.blocks(seq)[0] == NULL_BLOCK
    assert NULL_BLOCK not in book.blocks(seq)[1:]


def test_a_hit_needs_only_the_window_in_sliding_groups():
    book = Book(num_blocks=14, groups=(KVGroup((0,)), KVGroup((1,), window=6)))
    first = book.compute(book.open(range(20)), until=16)
    book.compute(first)
    book.kv.release(first)
    hit = book.kv.find(book.sequence(range(20)))[1]
    assert hit.num_tokens == 19
    # positions 11 to 15 for the sliding group: blocks 2 and 3
    assert [found is None for found in hit.blocks[1]] == [True, True, False, False]


def test_a_hit_shrinks_to_where_the_window_is_still_cached():
    book = Book(groups=(KVGroup((0,), window=5),))
    seq = book.compute(book.open(range(17)))
    blocks = book.blocks(seq)
    book.kv.release(seq)
    book.kv.device.discard(blocks[3])
    assert book.kv.find(book.sequence(range(17)))[1].num_blocks == 3
    book.kv.device.discard(blocks[2])
    assert book.kv.find(book.sequence(range(17)))[1].num_blocks == 2
    book.kv.device.discard(blocks[1])
    assert book.kv.find(book.sequence(range(17)))[1].num_blocks == 1


def test_evicted_prefixes_go_to_the_cpu_tier_and_come_back():
    book = Book(num_blocks=4, num_cpu_blocks=8)
    book.kv.release(book.compute(book.open(range(16))))
    other = book.open([90, 91, 92, 93, 94])
    book.kv.grow(other, 16)
    out, _, _ = book.kv.take_moves()
    assert len(out) == 4
    book.kv.release(other, keep=False)
    book.next_step()
    again = book.open(range(16))
    _, back, _ = book.kv.take_moves()
    assert again.num_computed == 12
    assert sorted(move.source for move in back) == sorted(move.target for move in out if move.source != 4)[:3]


def test_a_step_that_evicts_very_much_keeps_only_some_of_it():
    book = Book(num_blocks=40, num_cpu_blocks=80)
    book.kv.release(book.compute(book.open(range(160))))
    other = book.open([900, 901, 902])
    book.kv.grow(other, 160)
    out, _, _ = book.kv.take_moves()
    assert len(out) == MOST_KEPT_A_STEP
    assert book.kv.stats.evictions == 40


@pytest.mark.parametrize(("num_cpu_blocks", "kept"), [(2, 0), (3, 2)])
def test_a_cpu_tier_much_smaller_than_the_device_is_left_to_sequences(num_cpu_blocks, kept):
    book = Book(num_blocks=40, num_cpu_blocks=num_cpu_blocks)
    book.kv.release(book.compute(book.open(range(160))))
    book.kv.grow(book.open([900, 901, 902]), 8)
    assert book.kv.stats.evictions == 2
    assert len(book.kv.take_moves()[0]) == kept


def test_swap_out_and_in_keeps_what_was_computed():
    book = Book(num_blocks=8, num_cpu_blocks=8)
    seq = book.compute(book.open(range(10)))
    assert book.kv.can_swap_out(seq)
    book.kv.swap_out(seq)
    check(book.kv)
    assert book.kv.device.pool.num_used == 0
    assert len(book.kv.take_moves()[0]) == 3
    book.next_step()
    assert book.kv.cost_of_return(seq, 11) == 3
    book.kv.swap_in(seq)
    check(book.kv)
    # the two full blocks are still named on the device: only the begun one is copied
    assert len(book.kv.take_moves()[1]) == 1
    assert seq.num_computed == 10
    assert book.kv.host.pool.num_used == 0


def test_blocks_of_a_lost_step_are_not_found(book):
    seq = book.open(range(9))
    book.kv.grow(seq, 9)
    seq.grant(9)
    book.kv.register(seq)
    book.kv.forget_since(book.step)
    book.kv.release(seq, keep=False)
    book.next_step()
    assert book.open(range(9)).num_computed == 0


def test_usage_counts_waste_and_sharing(book):
    parent = book.compute(book.open(range(10)))
    usage = book.kv.usage()
    assert (usage.allocated_slots, usage.wasted_slots, usage.waste) == (12, 2, 2 / 12)
    child = book.sequence(range(10))
    child.fork_at(9)
    book.kv.fork(parent, child)
    usage = book.kv.usage()
    assert (usage.used_blocks, usage.unshared_blocks, usage.shared_blocks) == (3, 6, 3)


def test_most_blocks_is_bounded_by_the_window():
    book = Book(groups=(KVGroup((0,), window=8),))
    assert book.kv.most_blocks(1000, chunk=4) == 4 + 1
    assert Book().kv.most_blocks(1000, chunk=4) == 250 + 1


def test_a_prompt_that_is_to_be_retained_outlives_others():
    for retain in (False, True):
        book = Book(num_blocks=16)
        wanted = book.compute(book.open(range(9), retain_prefix=retain))
        book.kv.release(wanted)
        book.next_step()
        for start in range(100, 1000, 100):
            book.kv.release(book.compute(book.open(range(start, start + 12))))
            book.next_step()
        assert book.open(range(9)).num_computed == (8 if retain else 0)


def test_a_hit_retains_what_it_found():
    book = Book(num_blocks=16)
    book.kv.release(book.compute(book.open(range(9))))
    book.next_step()
    book.kv.release(book.open(range(9), retain_prefix=True))
    assert [book.kv.device.pool.is_retained(block) for block in (1, 2)] == [True, True]
    check(book.kv)
