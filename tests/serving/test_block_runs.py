"""Whose every block is, as runs: each block has one value, and values agree with what the pool counts."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from quire.core.sequence import Sequence
from quire.serving.block_runs import CACHED, FREE, OWNED, SHARED, USED, block_runs, runs_of
from tests.kvcache.test_manager import BLOCK, Book


def values_of(book: Book) -> list[int]:
    runs = block_runs(book.kv).runs
    return [value for value, length in zip(runs[::2], runs[1::2], strict=True) for _ in range(length)]


def opened(book: Book, name: str, tokens: range) -> Sequence:
    """A sequence of a request with this id."""
    seq = book.sequence(tokens)
    seq.request = msgspec.structs.replace(seq.request, id=name, tenant=f"{name}'s")
    book.kv.attach(seq, *book.kv.find(seq))
    return book.compute(seq)


@given(st.lists(st.integers(0, 5)))
def test_runs_say_everything_and_no_more(values: list[int]) -> None:
    runs = runs_of(values)
    assert [value for value, length in zip(runs[::2], runs[1::2], strict=True) for _ in range(length)] == values
    assert all(one != other for one, other in zip(runs[::2], runs[2::2], strict=False))


def test_an_idle_pool_is_one_run() -> None:
    assert block_runs(Book(num_blocks=34_000).kv).runs == [FREE, 34_000]


def test_blocks_are_their_requests_or_shared_or_cached() -> None:
    book = Book(num_blocks=10)
    first = opened(book, "a", range(3 * BLOCK))
    second = opened(book, "b", range(100, 100 + 2 * BLOCK))
    told = block_runs(book.kv)
    assert told.requests == [("a", "a's"), ("b", "b's")]
    assert [values_of(book)[block - 1] for block in book.blocks(first)] == [OWNED] * 3
    assert [values_of(book)[block - 1] for block in book.blocks(second)] == [OWNED + 1] * 2
    third = opened(book, "c", range(3 * BLOCK + 1))
    held = [values_of(book)[block - 1] for block in book.blocks(third)]
    assert held[:3] == [SHARED] * 3
    assert held[3] == OWNED + 2
    for seq in (first, second, third):
        book.kv.release(seq)
    assert block_runs(book.kv).requests == []
    assert values_of(book).count(CACHED) == book.kv.device.pool.num_cached > 0


def test_used_blocks_are_as_many_as_the_pool_counts_also_while_one_is_copied() -> None:
    book = Book(num_blocks=16)
    parent = opened(book, "a", range(BLOCK + 2))
    child = book.sequence(parent.tokens)
    child.grant(parent.num_computed)
    book.kv.fork(parent, child)
    book.kv.grow(child, BLOCK + 3)
    book.kv.release(parent, keep=False)
    assert book.kv.moves.held_device
    values = values_of(book)
    assert USED in values
    pool = book.kv.device.pool
    assert sum(value > CACHED for value in values) == pool.num_used
    assert len(values) == pool.num_blocks
    book.next_step()
    book.kv.release(child)


def test_blocks_of_several_ranks_follow_each_other() -> None:
    first, second = Book(num_blocks=5), Book(num_blocks=7)
    assert block_runs(first.kv, second.kv).runs == [FREE, 12]
