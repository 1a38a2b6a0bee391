"""Experts in slots: who is there, who leaves, what is copied, and that nothing computes before its copies are there."""

from collections.abc import Iterable

import pytest
import torch
from torch import Tensor

from quire.core.expert_load import CacheCounts
from quire.layers.copy_lane import CopyLane
from quire.layers.expert_cache import ExpertCache
from quire.ops.quantized_matrix import QuantizedMatrix

CPU = torch.device("cpu")
EXPERTS, ROWS, COLUMNS = 6, 2, 4


class LateLane(CopyLane):
    """Copies come as late as they may."""

    def __init__(self) -> None:
        self.copied = 0
        self._under_way: list[tuple[Tensor, Tensor]] = []

    def copy(self, room: int, targets: Iterable[Tensor], sources: Iterable[Tensor]) -> None:
        self._under_way += zip(targets, sources, strict=True)
        for target, _ in self._under_way:
            target.fill_(99)

    def await_copies(self, room: int) -> None:
        for target, source in self._under_way:
            target.copy_(source)
            self.copied += source.nbytes
        self._under_way.clear()


def stack(halves: int) -> Tensor:
    """Every row has the number of its expert, and of its half."""
    experts = torch.arange(float(EXPERTS)).repeat_interleave(ROWS)
    return torch.cat([experts + 10 * half for half in range(halves)])[:, None].expand(-1, COLUMNS).contiguous()


def cache(slots: int) -> tuple[ExpertCache, LateLane]:
    lane = LateLane()
    found = ExpertCache(EXPERTS, slots, CPU, lane)
    found.settle((stack(2), torch.arange(2.0 * EXPERTS * ROWS), 2), (stack(1), None, 1))
    return found, lane


def in_slot(found: ExpertCache, slot: int) -> tuple[list[float], float]:
    """The numbers of a slot's gate and up, and of its down."""
    up, down = found.stack(0).stack(), found.stack(1).stack()
    assert isinstance(up, Tensor)
    assert isinstance(down, Tensor)
    halves = up.view(2, found.num_slots, ROWS, COLUMNS)[:, slot]
    assert all((half == half[0, 0]).all() for half in halves)
    return halves[:, 0, 0].tolist(), down.view(found.num_slots, ROWS, COLUMNS)[slot, 0, 0].item()


def test_those_that_were_asked_for_are_in_their_slots() -> None:
    found, lane = cache(3)
    slots = found.fetch([4, 1])
    assert [slots[each].item() >= 0 for each in range(EXPERTS)] == [False, True, False, False, True, False]
    found.await_experts()
    for expert in (4, 1):
        assert in_slot(found, int(slots[expert])) == ([expert, expert + 10], expert)
    bias = found.stack(0).slot_bias
    assert bias is not None
    assert bias.view(2, 3, ROWS)[1, int(slots[4])].tolist() == [12 + 8, 12 + 9]
    assert lane.copied == 2 * 4 * (3 * ROWS * COLUMNS + 2 * ROWS)


def test_the_least_recently_used_leaves() -> None:
    found, lane = cache(3)
    for asked in ([0, 1, 2], [0], [3]):
        found.fetch(asked)
    assert found.experts == [2, 0, 3], "1 and 2 were not asked for since, and 1 came first"
    found.fetch([2, 5])
    assert found.experts == [3, 2, 5]
    found.await_experts()
    copied = lane.copied
    slots = found.fetch([5, 2, 3])
    found.await_experts()
    assert lane.copied == copied, "all are there"
    assert [in_slot(found, int(slots[each]))[1] for each in (2, 3, 5)] == [2, 3, 5]
    assert found.counts == CacheCounts(hits=5, misses=5, evictions=2)


def test_one_that_is_asked_for_never_makes_way_for_another() -> None:
    found, _ = cache(2)
    found.fetch([0, 1])
    slots = found.fetch([0, 2])
    found.await_experts()
    assert sorted(found.experts) == [0, 2]
    assert [in_slot(found, int(slots[each]))[1] for each in (0, 2)] == [0, 2]


@pytest.mark.parametrize("count", [5, 2000])
def test_chosen_experts_come_once_and_those_that_are_here_first(count: int) -> None:
    found, _ = cache(3)
    found.fetch([5, 3])
    ids = torch.tensor([[0, 5], [3, 0], [1, 5]]).repeat(count, 1)
    assert found.chosen(ids) == [3, 5, 0, 1]


def test_planes_of_a_quantized_stack_come_together() -> None:
    rows = EXPERTS * ROWS
    numbers = torch.arange(rows)
    home = QuantizedMatrix(
        "int8",
        numbers[:, None].expand(-1, COLUMNS).to(torch.int8).contiguous(),
        numbers[:, None].float(),
        None,
        COLUMNS,
        COLUMNS,
    )
    found = ExpertCache(EXPERTS, 2, CPU)
    found.settle((home, None, 1))
    slots = found.fetch([5, 2])
    found.await_experts()
    held = found.stack(0).stack()
    assert isinstance(held, QuantizedMatrix)
    first = int(slots[5]) * ROWS
    assert held.values[first : first + ROWS, 0].tolist() == held.scales[first : first + ROWS, 0].tolist() == [10, 11]
