"""The index: names, longest heads, and what is forgotten."""

from quire.kvcache.prefix import MAX_CANDIDATES, CachedBlock, PrefixIndex, common_head


def entry(
    block: int, tokens: tuple[int, ...], name: bytes | None = None, step: int = 1, parent: bytes = b""
) -> CachedBlock:
    return CachedBlock(block, 0, parent, name, tokens, step)


def test_full_blocks_are_found_by_name_until_discarded():
    index = PrefixIndex(num_groups=2)
    index.add(entry(5, (1, 2), b"n"))
    found = index.find(0, b"n")
    assert found is not None
    assert found.block == 5
    assert index.find(1, b"n") is None
    index.discard(5)
    assert index.find(0, b"n") is None
    assert len(index) == 0
    index.check()


def test_the_longest_head_behind_a_parent_wins():
    index = PrefixIndex(1)
    index.add(entry(1, (7, 8, 9), b"a"))
    index.add(entry(2, (7, 8), None))
    index.add(entry(3, (7, 8, 9, 4), None, parent=b"other"))
    best, length = index.longest(0, b"", [7, 8, 9, 9], before=2)
    assert best is not None
    assert (best.block, length) == (1, 3)
    assert index.longest(0, b"", [6], before=2) == (None, 0)


def test_what_this_step_computes_cannot_be_copied_yet():
    index = PrefixIndex(1)
    index.add(entry(1, (7, 8), step=5))
    assert index.longest(0, b"", [7], before=5) == (None, 0)
    assert index.longest(0, b"", [7], before=6)[1] == 1
    assert index.since(5) == [1]
    assert index.since(6) == []


def test_candidates_are_bounded_and_old_partial_ones_are_given_up():
    index = PrefixIndex(1)
    index.add(entry(100, (7, 1), b"full"))
    lost: list[int] = []
    for block in range(MAX_CANDIDATES + 3):
        lost += index.add(entry(block, (7, block)))
    index.check()
    assert lost == [0, 1, 2]  # the full one also left the candidates, but keeps its name
    assert index.find(0, b"full") is not None


def test_a_block_that_fills_up_replaces_its_own_entry():
    index = PrefixIndex(1)
    index.add(entry(1, (7,)))
    index.add(entry(1, (7, 8), b"n"))
    index.check()
    assert len(index) == 1


def test_common_head():
    assert common_head((), [1]) == 0
    assert common_head((1, 2, 3), [1, 2]) == 2
    assert common_head((1, 2), [1, 3]) == 1
