"""Proof that the KV bookkeeping is consistent; tests call it after every operation, the engine when idle."""

from collections import Counter

from quire.kvcache.blocks import NULL_BLOCK
from quire.kvcache.manager import KVManager


def check(manager: KVManager) -> None:
    """Raise AssertionError unless every reference, table, name and slot count agrees."""
    manager.device.check()
    manager.host.check()
    _check_references(manager)
    for seq, table in manager.sequences_and_tables():
        assert len({len(blocks) for blocks in table.blocks}) == 1, f"{seq}: groups of different length"
        assert seq.num_computed <= len(table) * manager.block_size, f"{seq}: computed more than its blocks hold"
        assert seq.num_slots <= len(table) * manager.block_size, f"{seq}: more slots than its blocks hold"
        for group, blocks in enumerate(table.blocks):
            trimmed = table.trimmed[group]
            assert all(block == NULL_BLOCK for block in blocks[:trimmed]), f"{seq}: a trimmed block is still held"
            assert NULL_BLOCK not in blocks[trimmed:], f"{seq}: a null block inside its window"
            assert len(set(blocks[trimmed:])) == len(blocks) - trimmed, f"{seq}: a block twice"
    _check_single_writers(manager)


def _check_references(manager: KVManager) -> None:
    expected = Counter(block for _, table in manager.sequences_and_tables() for block in table.held())
    expected.update(manager.moves.held_device)
    expected.update(manager.held_beside)
    expected.update(manager.transit.held)
    actual = {block: count for block, count in enumerate(manager.device.pool.refs) if count}
    assert actual == dict(expected), "device references do not match the tables"
    on_host = Counter(block for table in manager.host.swapped_tables() for block in table.held())
    on_host.update(manager.moves.held_host)
    actual = {block: count for block, count in enumerate(manager.host.pool.refs) if count}
    assert actual == dict(on_host), "CPU references do not match the swapped tables"


def _check_single_writers(manager: KVManager) -> None:
    """A block that a sequence writes without asking (below `num_slots`) is its own."""
    refs = manager.device.pool.refs
    held = manager.moves.held_device
    for seq, table in manager.sequences_and_tables():
        first = seq.num_computed // manager.block_size
        last = -(-seq.num_slots // manager.block_size)
        for blocks in table.blocks:
            for block in blocks[first:last] if seq.num_slots > seq.num_computed else ():
                # a source of a copy is held until the plan is sealed; that reader is done before the write
                assert refs[block] - held[block] == 1, f"{seq}: would write into a shared block {block}"
