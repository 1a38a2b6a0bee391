"""Slots are handed out on demand, neutral, and their memory goes when nobody uses it."""

import pytest
import torch

from quire.sampling.slot_pool import SlotPool
from tests.sampling.rows import CPU


def pool(max_rows: int = 5) -> SlotPool:
    return SlotPool(max_rows, 3, torch.int32, 0, CPU)


def test_rows_without_a_slot_read_the_neutral_one() -> None:
    slots = pool()
    slots.take(3).fill_(7)
    assert slots.table[slots.slots].tolist() == [[0] * 3, [0] * 3, [0] * 3, [7] * 3, [0] * 3]


def test_the_table_grows_to_the_rows_and_back_to_nothing() -> None:
    slots = pool()
    sizes = []
    for row in range(5):
        slots.take(row).fill_(row + 1)
        sizes.append(len(slots.table))
    assert sizes == [2, 4, 4, 6, 6]
    assert slots.table[slots.slots][:, 0].tolist() == [1, 2, 3, 4, 5]
    for row in range(5):
        slots.give_back(row)
    assert slots.is_empty
    assert slots.table.shape == (1, 3)
    assert slots.slots.tolist() == [0] * 5


def test_a_slot_is_neutral_again_for_its_next_row() -> None:
    slots = pool()
    slots.take(0).fill_(9)
    slots.take(1).fill_(8)
    slots.give_back(0)
    slots.give_back(0)
    assert slots.take(2).tolist() == [0, 0, 0]
    assert len(slots.table) == 4
    assert int(slots.table[slots.slots[1], 0]) == 8


def test_a_row_has_one_slot() -> None:
    slots = pool()
    slots.take(0)
    with pytest.raises(AssertionError, match="already has a slot"):
        slots.take(0)
