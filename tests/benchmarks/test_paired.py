"""Ratios of interleaved runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.paired import difference, digits, middle, times_better

SAMPLES = st.lists(st.floats(0.01, 1e6), min_size=1, max_size=9)


def test_ratios_are_of_the_same_round() -> None:
    # the second round ran on a machine half as fast: both doubled, and the ratio stayed
    ours, theirs = [1.0, 2.0, 1.1], [3.0, 6.0, 3.3]
    found = times_better(ours, theirs, "lower")
    assert (found.median, found.least, found.most) == pytest.approx((3, 3, 3))
    assert times_better(ours, theirs, "higher").median == pytest.approx(1 / 3)


def test_rounds_must_be_pairs() -> None:
    with pytest.raises(ValueError, match="zip"):
        times_better([1.0, 2.0], [1.0], "lower")


@given(SAMPLES)
def test_what_is_compared_with_itself_is_the_same(samples: list[float]) -> None:
    assert times_better(samples, samples, "lower").median == 1
    assert difference(samples, samples).most == 0


@given(SAMPLES)
def test_the_median_lies_inside_the_spread(samples: list[float]) -> None:
    found = middle(samples)
    assert found.least <= found.median <= found.most


@pytest.mark.parametrize(("value", "shown"), [(1234.4, "1,234"), (99.94, "99.9"), (2.5, "2.5"), (0.01234, "0.0123")])
def test_digits(value: float, shown: str) -> None:
    assert digits(value) == shown
