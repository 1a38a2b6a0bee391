"""Where copies of experts go: every expert is somewhere, none twice on a rank, and no rank gets more than without."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.spec.expert_copies import (
    Copies,
    HeldExperts,
    balanced_copies,
    first_copies,
    imbalance,
    rank_loads,
    ranks_of_experts,
)

Case = tuple[list[int], int, int]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Loads of experts, ranks and spare places of each."""
    ranks = draw(st.integers(1, 6))
    load = draw(st.lists(st.integers(0, 1000), min_size=ranks, max_size=24))
    return load, ranks, draw(st.integers(0, len(load) - -(-len(load) // ranks)))


def check_places(copies: Copies, num_experts: int, spare: int) -> None:
    for rank, copied in enumerate(copies):
        held = HeldExperts(rank, num_experts, copies)
        assert len(copied) <= spare
        assert len(set(held.experts)) == len(held.home) + len(copied)
    assert all(ranks_of_experts(num_experts, copies))


@given(cases())
def test_copies_relieve_the_busiest_rank(case: Case) -> None:
    load, ranks, spare = case
    copies = balanced_copies(load, ranks, spare)
    check_places(copies, len(load), spare)
    loads, before = rank_loads(load, copies), rank_loads(load, ((),) * ranks)
    assert max(loads) <= max(before)
    assert sum(loads) == pytest.approx(sum(load))


@given(cases())
def test_places_are_full_before_a_load_is_known(case: Case) -> None:
    load, ranks, spare = case
    copies = first_copies(len(load), ranks, spare)
    check_places(copies, len(load), spare)
    assert all(len(copied) == spare for copied in copies)
    if len(load) % ranks == 0:
        assert imbalance([1] * len(load), copies) == pytest.approx(1)


@given(cases())
def test_a_token_is_computed_by_one_rank(case: Case) -> None:
    load, ranks, spare = case
    copies = first_copies(len(load), ranks, spare)
    turns = [HeldExperts(rank, len(load), copies).turns() for rank in range(ranks)]
    for of_expert in zip(*turns, strict=True):
        [count] = {count for count, _ in of_expert}
        assert sorted(turn for _, turn in of_expert if turn >= 0) == list(range(count))


def test_one_hot_expert_is_everywhere() -> None:
    load = [90, 0, 0, 0, 0, 0]
    assert balanced_copies(load, 3, 1) == ((), (0,), (0,))
    assert imbalance(load, ((), (), ())) == 3
    assert imbalance(load, ((), (0,), (0,))) == 1


def test_the_hottest_of_a_busy_rank_moves_in_part() -> None:
    load = [60, 40, 10, 10]
    copies = balanced_copies(load, 2, 1)
    assert copies == ((), (0,))
    assert rank_loads(load, copies) == [70, 50]


def test_an_even_load_needs_no_copies() -> None:
    assert balanced_copies([5] * 8, 4, 2) == ((), (), (), ())
    assert imbalance([0] * 8, ((),) * 4) == 1
