"""Moments of sending: their rate, their burstiness, and traces as they happened."""

import math
from itertools import pairwise
from statistics import fmean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.bench.arrivals import random_arrivals, replayed_arrivals

RATES = st.floats(0.01, 1e4)


def gaps(moments: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(moments)]


@given(st.integers(0, 200), RATES, st.floats(0.05, 50) | st.just(math.inf), st.integers(0, 10))
def test_moments_rise_from_zero(count: int, rate: float, burstiness: float, seed: int) -> None:
    moments = random_arrivals(count, rate, burstiness, seed)
    assert len(moments) == count
    assert moments == sorted(moments)
    assert not moments or moments[0] == 0
    assert moments == random_arrivals(count, rate, burstiness, seed)


def test_without_a_rate_all_come_at_once() -> None:
    assert random_arrivals(3, None, 1.0, 0) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_have_the_mean_of_the_rate_and_the_spread_of_the_shape(burstiness: float) -> None:
    found = gaps(random_arrivals(20_000, 5.0, burstiness, seed=1))
    assert fmean(found) == pytest.approx(0.2, rel=0.05)
    # a gamma distribution of shape k has a deviation of mean / sqrt(k); 1 is the exponential's
    assert pstdev(found) / fmean(found) == pytest.approx(burstiness**-0.5, rel=0.1)


def test_infinite_burstiness_is_a_fixed_beat() -> None:
    assert random_arrivals(4, 2.0, math.inf, 0) == [0.0, 0.5, 1.0, 1.5]


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.1, 100))
def test_replayed_moments_keep_their_proportions(moments: list[float], speed: float) -> None:
    replayed = replayed_arrivals(moments, speed)
    assert min(replayed) == 0
    assert max(replayed) == pytest.approx((max(moments) - min(moments)) / speed)
