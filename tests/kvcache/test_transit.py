"""Blocks on their way in and out: referenced, nameless until they are whole, and found after that."""

from quire.config.resolved import KVGroup
from quire.kvcache.invariants import check
from tests.kvcache.test_manager import BLOCK, Book

WINDOWED = (KVGroup((0,)), KVGroup((1,), window=6))


def prompt(length: int) -> list[int]:
    return list(range(100, 100 + length))


def missing(book: Book, length: int):
    seq = book.sequence(prompt(length))
    table = book.kv.name_blocks(seq)
    return book.kv.transit.missing(table, seq.tokens, len(table.names))


def test_what_arrives_is_a_hit_from_then_on():
    book = Book()
    entries = missing(book, 3 * BLOCK + 1)
    assert [entry.tokens for entry in entries] == [tuple(prompt(12)[i : i + 4]) for i in (0, 4, 8)]
    book.kv.transit.expect(entries)
    check(book.kv)
    assert book.kv.device.pool.num_used == 3
    assert book.kv.find(book.sequence(prompt(13)))[1].num_tokens == 0, "bytes that are not there were found"
    for entry in entries:
        book.kv.transit.arrived(entry)
    check(book.kv)
    assert (book.kv.device.pool.num_used, book.kv.device.pool.num_cached) == (0, 3)
    seq = book.open(prompt(13))
    assert seq.num_computed == 12
    assert book.blocks(seq)[:3] == [entry.block for entry in entries]
    assert missing(book, 13) == []


def test_what_is_lost_leaves_nothing():
    book = Book()
    entries = missing(book, 9)
    book.kv.transit.expect(entries)
    for entry in entries:
        book.kv.transit.lost(entry)
    check(book.kv)
    assert (book.kv.device.pool.num_used, book.kv.device.pool.num_cached) == (0, 0)


def test_what_was_computed_meanwhile_is_kept_once():
    book = Book()
    entries = missing(book, 9)
    book.kv.transit.expect(entries)
    computed = book.compute(book.open(prompt(9)))
    for entry in entries:
        book.kv.transit.arrived(entry)
    check(book.kv)
    assert book.kv.device.pool.num_used == 3
    assert book.blocks(computed)[0] != entries[0].block


def test_only_what_a_window_reaches_is_missing():
    book = Book(groups=WINDOWED)
    entries = missing(book, 4 * BLOCK + 1)
    found = [(entry.group, entry.tokens[0] - 100) for entry in entries]
    assert found == [(0, 0), (0, 4), (0, 8), (1, 8), (0, 12), (1, 12)]
    book.kv.transit.expect(entries)
    for entry in entries:
        book.kv.transit.arrived(entry)
    assert book.open(prompt(17)).num_computed == 16


def test_a_lent_block_is_not_evicted():
    book = Book(num_blocks=4)
    seq = book.compute(book.open(prompt(8)))
    names = list(seq.block_names)
    book.kv.release(seq)
    lent = book.kv.transit.lend(0, names[0], book.step)
    assert lent is not None
    assert book.kv.num_free == 3
    other = book.compute(book.open([7] * 9))
    assert lent not in book.blocks(other)
    check(book.kv)
    book.kv.transit.give_back([lent])
    book.kv.release(other)
    check(book.kv)


def test_a_block_that_a_step_still_computes_is_not_lent():
    book = Book()
    seq = book.open(prompt(8))
    book.kv.grow(seq, 8)
    seq.grant(8)
    book.kv.register(seq)
    assert book.kv.transit.lend(0, seq.block_names[0], book.step - 1) is None
    assert book.kv.transit.lend(0, seq.block_names[0], book.step) is not None
    assert book.kv.transit.lend(0, b"unknown", book.step) is None
