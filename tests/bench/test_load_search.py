"""The search for the highest load that holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.bench.load_search import Bracket, bracket, search

LOADS = st.lists(st.floats(0.1, 1000), min_size=1, max_size=8)


@given(LOADS, st.floats(0, 1100), st.integers(0, 8))
def test_a_threshold_is_closed_in(loads: list[float], threshold: float, refine: int) -> None:
    asked: list[float] = []

    def holds(load: float) -> bool:
        asked.append(load)
        return load <= threshold

    found = search(loads, refine, False, holds)
    assert len(asked) == len(set(asked)) <= len(set(loads)) + refine
    good = [load for load in asked if load <= threshold]
    bad = [load for load in asked if load > threshold]
    assert found == Bracket(max(good, default=None), min(bad, default=None))
    if good and bad and len(asked) == len(set(loads)) + refine:
        first = [load for load in set(loads) if load <= threshold], [load for load in set(loads) if load > threshold]
        gap = min(first[1]) - max(first[0])
        assert found.bad is not None
        assert found.good is not None
        assert found.bad - found.good == pytest.approx(gap / 2**refine, rel=1e-6, abs=1e-9)


@given(st.integers(1, 500), st.integers(1, 200))
def test_whole_loads_end_at_neighbours(threshold: int, first: int) -> None:
    found = search([float(first), 1000.0], 20, True, lambda load: load <= threshold)
    if first <= threshold:
        assert found == Bracket(float(threshold), float(threshold + 1))
    else:
        assert found == Bracket(None, float(first))


def test_good_luck_above_a_bad_load_does_not_count() -> None:
    assert bracket({1.0: True, 2.0: False, 4.0: True}) == Bracket(1.0, 2.0)
