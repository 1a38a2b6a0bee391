"""What lies on disk, what a prompt lacks of it, and who makes room. Every test ends with balanced books."""

import pytest

from quire.config.resolved import KVGroup
from quire.kvcache.disk import DiskTier, Lacking, StoredBlock
from quire.kvcache.prefix import CachedBlock
from quire.kvcache.tier import Tier

BLOCK = 4
FULL = (KVGroup((0,)),)
MIXED = (KVGroup((0,)), KVGroup((1,), window=6))


def name(number: int) -> bytes:
    return bytes([number]) * 32


def entry(number: int, group: int = 0, block: int = 1) -> CachedBlock:
    return CachedBlock(block, group, b"", name(number), (1,), 0)


def write(tier: DiskTier, *numbers: int, group: int = 0) -> list[int]:
    slots = []
    for number in numbers:
        slot = tier.begin_write()
        assert slot is not None
        tier.end_write(slot, entry(number, group), worked=True)
        slots.append(slot)
    tier.check()
    return slots


def upper(groups=FULL, held=()) -> Tier:
    """A tier of memory that holds (group, number) pairs."""
    tier = Tier(16, len(groups), lambda entry: None)
    for group, number in held:
        [block] = tier.pool.allocate()
        tier.add(entry(number, group, block))
    return tier


def test_a_prompt_lacks_what_only_the_disk_has() -> None:
    tier = DiskTier(8, FULL, BLOCK)
    first, second, third = write(tier, 1, 2, 3)
    names = [name(number) for number in (1, 2, 3, 4)]
    assert tier.lacking(names, [upper()]) == (0, [Lacking(0, 0, first), Lacking(0, 1, second), Lacking(0, 2, third)])
    assert tier.lacking(names, [upper(held=[(0, 1), (0, 2)])]) == (2, [Lacking(0, 2, third)])
    assert tier.lacking(names, [upper(held=[(0, 2)])])[1] == [Lacking(0, 0, first), Lacking(0, 2, third)]
    assert tier.lacking([name(9), *names], [upper()]) == (0, [])


def test_of_a_sliding_window_only_what_it_reaches_is_read() -> None:
    tier = DiskTier(16, MIXED, BLOCK)
    full = write(tier, 1, 2, 3, 4, group=0)
    sliding = write(tier, 3, 4, group=1)
    names = [name(number) for number in (1, 2, 3, 4)]
    before, lacking = tier.lacking(names, [upper(MIXED)])
    assert before == 0
    # 16 tokens, a window of 6: the next token looks at positions 11 to 16, that is blocks 2 and 3
    assert {(each.group, each.position, each.slot) for each in lacking} == {
        *((0, place, slot) for place, slot in enumerate(full)),
        (1, 2, sliding[0]),
        (1, 3, sliding[1]),
    }


def test_without_its_window_a_prefix_is_of_no_use() -> None:
    tier = DiskTier(16, MIXED, BLOCK)
    write(tier, 1, 2, 3, group=0)
    assert tier.lacking([name(1), name(2), name(3)], [upper(MIXED)]) == (0, [])


def test_the_least_recently_used_make_room() -> None:
    tier = DiskTier(3, FULL, BLOCK)
    _, second, _ = write(tier, 1, 2, 3)
    assert tier.has(entry(1))
    assert write(tier, 4) == [second]
    assert not tier.has(entry(2))
    assert tier.has(entry(1))
    assert tier.stats.evictions == 1


def test_what_is_read_or_written_is_not_written_over() -> None:
    tier = DiskTier(2, FULL, BLOCK)
    first, second = write(tier, 1, 2)
    tier.begin_read([Lacking(0, 0, first)])
    assert tier.begin_write() == second
    assert tier.begin_write() is None
    tier.end_write(second, entry(3), worked=False)
    tier.end_read(first, worked=True)
    tier.check()
    assert tier.has(entry(1))
    assert not tier.has(entry(3))
    assert (tier.stats.reads, tier.stats.writes) == (1, 2)


def test_damaged_bytes_are_forgotten() -> None:
    tier = DiskTier(2, FULL, BLOCK)
    [slot] = write(tier, 1)
    tier.begin_read([Lacking(0, 0, slot)])
    tier.end_read(slot, worked=False)
    tier.check()
    assert tier.lacking([name(1)], [upper()]) == (0, [])
    assert tier.stats.corrupt == 1
    assert tier.pool.num_free == 2


@pytest.mark.parametrize("unusable", [(), (2, 5)])
def test_what_an_earlier_process_left_is_there_in_its_order(unusable: tuple[int, ...]) -> None:
    tier = DiskTier(5, FULL, BLOCK)
    tier.restore(
        [StoredBlock(4, 0, name(4), 7), StoredBlock(1, 0, name(1), 9), StoredBlock(3, 0, name(1), 2)], unusable
    )
    assert tier.pool.num_free == 5 - len(unusable)
    blank = [slot for slot in (2, 3, 5) if slot not in unusable]
    assert write(tier, *range(10, 10 + len(blank))) == blank  # low ones first
    assert write(tier, 20) == [4]  # then the one written longest ago
    assert tier.has(entry(1))


def test_what_was_retained_is_so_for_the_next_process() -> None:
    tier = DiskTier(8, FULL, BLOCK)
    tier.restore([StoredBlock(1, 0, name(1), 1, is_retained=True), StoredBlock(2, 0, name(2), 2)])
    write(tier, *range(10, 20))
    assert tier.has(entry(1))
    assert not tier.has(entry(2))
