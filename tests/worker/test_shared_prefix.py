"""Which rows share prefixes, and which read them together, against a search over whole tables."""

import random
from collections import Counter
from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.core.plan import Admission, StepPlan, TableDelta
from quire.core.sampling_params import SamplingParams
from quire.worker import shared_prefix
from quire.worker.shared_prefix import FEWEST, GRANULE, SharedPrefixes, Tile, cut, most_tiles
from tests.scheduler.bookkeeping import ReferenceDevice, make_request, make_scheduler

BLOCK = GRANULE
"""So that every block counts."""


def admission(row: int, *tables: list[int]) -> Admission:
    return Admission(row, f"request-{row}", 0, SamplingParams(), [1], 1, 0, list(tables))


def follow(tables: list[list[int]], block_size: int = BLOCK) -> SharedPrefixes:
    prefixes = SharedPrefixes([0], block_size)
    prefixes.follow(StepPlan(step=0, admitted=[admission(row, table) for row, table in enumerate(tables)]))
    return prefixes


def behind(row: int, *prefixes: range) -> list[int]:
    """A table with these blocks in front of some of its own."""
    return [*(block for prefix in prefixes for block in prefix), *range(10_000 + 10 * row, 10_000 + 10 * row + 5)]


def num_shared(tables: list[list[int]]) -> int:
    return sum(1 for _ in takewhile(lambda blocks: len(set(blocks)) == 1, zip(*tables, strict=False)))


def saved_at_one_depth(tables: list[list[int]], depth: int, most: int) -> int:
    """Positions, where all that have the same blocks up to a depth read those together."""
    sizes = Counter(tuple(table[:depth]) for table in tables if len(table) >= depth)
    return sum((size - -(-size // most)) * depth * BLOCK for size in sizes.values() if size >= FEWEST)


def assert_as_searched(prefixes: SharedPrefixes, tables: dict[int, list[int]], batch: list[int], most: int) -> None:
    tiles = prefixes.tiles(batch, most)
    members = [member for tile in tiles for member in tile.members]
    assert len(set(members)) == len(members)
    assert len(tiles) <= most_tiles(len(batch), most)
    for tile in tiles:
        assert 1 <= len(tile.members) <= most
        found = num_shared([tables[batch[member]] for member in tile.members])
        assert tile.length == found * BLOCK or (len(tile.members) == 1 and 0 < tile.length <= found * BLOCK)
    in_batch = [tables[row] for row in batch]
    deepest = max(map(len, in_batch), default=0)
    best = max((saved_at_one_depth(in_batch, depth, most) for depth in range(1, deepest + 1)), default=0)
    assert sum(tile.saved for tile in tiles) >= 0.9 * best


@given(st.randoms(use_true_random=False), st.sampled_from([2, 4, 16]))
def test_tiles_are_what_a_search_over_all_tables_finds(chance: random.Random, most: int) -> None:
    """Rows come behind the blocks of others, grow, get copies of shared blocks, and go."""
    prefixes, tables, unused = SharedPrefixes([0], BLOCK), dict[int, list[int]](), iter(range(1, 1 << 20))
    for step in range(40):
        released = [row for row in tables if chance.random() < 0.1]
        for row in released:
            del tables[row]
        admitted = []
        for row in chance.sample(sorted(set(range(48)) - set(tables)), 3):
            other = chance.choice([[], *tables.values()])
            kept = other[: chance.choice([2, 4, 6, 8, chance.randint(0, 12)])]
            tables[row] = [*kept, *(next(unused) for _ in range(chance.randint(1, 5)))]
            admitted.append(admission(row, list(tables[row])))
        deltas = []
        for row in chance.sample(sorted(tables), 2):
            start = chance.choice([len(tables[row]), chance.randint(0, len(tables[row]))])
            new = [next(unused) for _ in range(chance.randint(1, 3))]
            tables[row][start:] = new
            deltas.append(TableDelta(row, start, [new]))
        prefixes.follow(StepPlan(step=step, released=released, admitted=admitted, table_deltas=deltas))
        batch = chance.sample(sorted(tables), chance.randint(1, len(tables)))
        assert_as_searched(prefixes, tables, batch, most)


@pytest.mark.parametrize("seed", range(6))
def test_what_a_scheduler_plans_is_read_only_before_the_last_position_of_each(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With prefix hits, forks, preemption and blocks that are copied before they are written."""
    monkeypatch.setattr(shared_prefix, "GRANULE", 2)
    monkeypatch.setattr(shared_prefix, "FEWEST", 2)
    chance = random.Random(seed)
    scheduler = make_scheduler(num_blocks=40, num_cpu_blocks=20, block_size=2, max_num_seqs=6, max_model_len=60)
    device, prefixes = ReferenceDevice(scheduler), SharedPrefixes([0], 2)
    system = [[chance.randrange(4) for _ in range(11)] for _ in range(2)]
    num_tiles = 0
    for step in range(150):
        if step % 4 == 0 and step < 120:
            prompt = [*chance.choice(system), *(chance.randrange(4) for _ in range(chance.randint(1, 4)))]
            scheduler.add(make_request(f"request {step}", prompt, n=chance.choice([1, 1, 3]), max_tokens=20))
        plan = scheduler.schedule(float(step))
        prefixes.follow(plan)
        lengths = {row: device._rows[row].num_computed for row in plan.rows if row in device._rows}
        result = device.run(plan)
        decodes = [row for row, count in zip(plan.rows, plan.counts, strict=True) if count == 1 and row in lengths]
        for tile in prefixes.tiles(decodes, 4):
            num_tiles += 1
            rows = [decodes[member] for member in tile.members]
            assert num_shared([device._rows[row].tables[0] for row in rows]) * 2 >= tile.length
            assert all(tile.length <= lengths[row] for row in rows)
        if plan.rows:
            scheduler.update(result)
    assert num_tiles > 20


def test_one_prefix_of_all_is_read_by_full_tiles() -> None:
    tiles = follow([behind(row, range(1, 9)) for row in range(64)]).tiles(list(range(64)), 16)
    assert [len(tile.members) for tile in tiles] == [16] * 4
    assert {tile.length for tile in tiles} == {8 * BLOCK}


def test_sequences_of_several_prefixes_are_put_together() -> None:
    starts = [1 + 100 * (row % 4) for row in range(32)]
    tables = [behind(row, range(start, start + 8)) for row, start in enumerate(starts)]
    tiles = follow(tables).tiles(list(reversed(range(32))), 16)
    assert sorted(sorted(tile.members) for tile in tiles) == [list(range(first, 32, 4)) for first in range(4)]


@pytest.mark.parametrize(
    ("inner", "expected"),
    [(24, [(8, 40)] * 4), (1, [(16, 16)] * 2)],
    ids=["the longer saves more", "the shorter saves more"],
)
def test_of_prefixes_within_a_prefix_the_one_counts_that_saves_more(
    inner: int, expected: list[tuple[int, int]]
) -> None:
    """Four groups of eight, each with so many blocks of its own behind 16 of all. Of a tile: sequences, blocks."""
    firsts = [100 * (1 + row % 4) for row in range(32)]
    tables = [behind(row, range(1, 17), range(first, first + inner)) for row, first in enumerate(firsts)]
    tiles = follow(tables).tiles(list(range(32)), 16)
    assert [(len(tile.members), tile.length // BLOCK) for tile in tiles] == expected


def test_few_rows_have_no_tile_and_those_left_of_many_have() -> None:
    few = FEWEST - 1
    assert cut([0, *[1024] * (few - 1)], 16) == []
    assert cut([0, *[1024] * few], 16) == [Tile(list(range(FEWEST)), 1024)]
    left = cut([0, *[4096] * few, 1024, 1024], 16)
    assert left == [Tile(list(range(FEWEST)), 4096), Tile([FEWEST, FEWEST + 1], 1024)]


def test_tiles_of_too_many_are_even() -> None:
    assert [len(tile.members) for tile in cut([0, *[256] * 16], 16)] == [9, 8]


def test_less_than_whole_granules_does_not_count() -> None:
    tables = [behind(row, range(1, 20)) for row in range(8)]
    assert {tile.length for tile in follow(tables, 16).tiles(list(range(8)), 16)} == {256}
    assert follow([behind(row, range(1, 8)) for row in range(8)], 16).tiles(list(range(8)), 16) == []


def test_all_groups_that_keep_all_tokens_must_share() -> None:
    prefixes = SharedPrefixes([0, 2], BLOCK)
    tables = [(behind(row, range(1, 9)), [0] * 13, behind(row, range(201, 206))) for row in range(8)]
    prefixes.follow(StepPlan(step=0, admitted=[admission(row, *those) for row, those in enumerate(tables)]))
    assert [tile.length for tile in prefixes.tiles(list(range(8)), 16)] == [5 * BLOCK]


def test_growing_changes_nothing_and_a_copied_block_does() -> None:
    prefixes = follow([behind(row, range(1, 9)) for row in range(9)])
    before = prefixes.version
    prefixes.follow(StepPlan(step=1, table_deltas=[TableDelta(row, 13, [[50_000 + row]]) for row in range(9)]))
    assert prefixes.version == before
    prefixes.follow(StepPlan(step=2, table_deltas=[TableDelta(0, 6, [[60_000, 60_001]])]))
    assert prefixes.version > before
    assert [(sorted(tile.members), tile.length) for tile in prefixes.tiles(list(range(9)), 8)] == [
        (list(range(1, 9)), 8 * BLOCK)
    ]


def test_dummy_sequences_share_nothing() -> None:
    assert follow([[0, 0, 0]] * 16).tiles(list(range(16)), 16) == []


def test_an_admission_begins_a_row_anew() -> None:
    prefixes = follow([behind(row, range(1, 9)) for row in range(8)])
    prefixes.follow(StepPlan(step=1, admitted=[admission(3, behind(3, range(1, 5)))]))
    assert [(sorted(tile.members), tile.length) for tile in prefixes.tiles(list(range(8)), 16)] == [
        (list(range(8)), 4 * BLOCK)
    ]


def test_rows_that_were_forgotten_may_still_be_released() -> None:
    prefixes = follow([behind(row, range(1, 9)) for row in range(8)])
    prefixes.clear()
    prefixes.follow(StepPlan(step=1, released=[3], admitted=[admission(3, [1, 2, 3])]))
    assert prefixes.tiles([3], 16) == []
