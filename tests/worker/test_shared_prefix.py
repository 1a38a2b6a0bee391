"""When prefixes that rows share are worth a look."""

import pytest

from quire.core.plan import Admission, TableDelta
from quire.core.sampling_params import SamplingParams
from quire.worker.shared_prefix import SharedPrefixes

ROWS = list(range(16))
BLOCK = 16
LEAST = 128 << 20


def prefixes(saved_by_all: float, group: int = 0) -> SharedPrefixes:
    """16 rows that have 512 positions in common save as many times the least."""
    size = int(saved_by_all * LEAST / (15 * 512)) + 1
    return SharedPrefixes(17, 4096, BLOCK, group, bytes_per_position=size, least_saved=LEAST)


def admit(known: SharedPrefixes, row: int, table: list[int]) -> None:
    known.admit(Admission(row, f"request-{row}", 0, SamplingParams(), [1], 1, 0, [table]))


def table_of(row: int, num_common: int, first: int = 1) -> list[int]:
    own = [1000 * (row + 1) + number for number in range(64 - num_common)]
    return [*range(first, first + num_common), *own]


def test_rows_with_nothing_in_common_are_not() -> None:
    known = prefixes(100)
    for row in ROWS:
        admit(known, row, table_of(row, 0))
    assert not known.are_worth_it(ROWS)


@pytest.mark.parametrize(("saved", "worth"), [(1.0, True), (0.9, False)])
def test_a_long_prefix_of_many_rows_is(saved: float, worth: bool) -> None:
    known = prefixes(saved)
    for row in ROWS:
        admit(known, row, table_of(row, 512 // BLOCK))
    assert known.are_worth_it(ROWS) is worth
    assert not known.are_worth_it(ROWS[:8])


def test_several_prefixes_count_together_but_not_those_of_few_rows() -> None:
    known = prefixes(1.1)
    for row in ROWS:
        admit(known, row, table_of(row, 512 // BLOCK, first=1 + 100 * (row % 2)))
    assert known.are_worth_it(ROWS)
    for row in ROWS:
        admit(known, row, table_of(row, 512 // BLOCK, first=1 + 100 * (row % 4)))
    assert not known.are_worth_it(ROWS)


def test_rows_that_are_too_short_have_nothing_in_common() -> None:
    known = prefixes(100)
    for row in ROWS:
        admit(known, row, list(range(1, 10)))
    assert not known.are_worth_it(ROWS)


def test_blocks_that_come_later_count_and_a_new_sequence_forgets_them() -> None:
    known = prefixes(1)
    for row in ROWS:
        admit(known, row, [1, 2])
    assert not known.are_worth_it(ROWS)
    known.change([TableDelta(row, 2, [list(range(3, 40))]) for row in ROWS])
    assert known.are_worth_it(ROWS)
    admit(known, 3, [1, 2])
    assert not known.are_worth_it(ROWS)


def test_the_group_without_a_window_is_looked_at() -> None:
    known = prefixes(1, group=1)
    for row in ROWS:
        tables = [table_of(row, 0), table_of(row, 512 // BLOCK)]
        known.admit(Admission(row, f"request-{row}", 0, SamplingParams(), [1], 1, 0, tables))
    assert known.are_worth_it(ROWS)
