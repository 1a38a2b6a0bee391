"""Histograms: percentiles within one percent, and sums that do not care who counted."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.simulation.histogram import Histogram, Percentiles

times = st.lists(st.floats(2e-6, 1e5), min_size=1, max_size=200)


def filled(values: list[float]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    return histogram


@given(times, st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_percentiles_are_close(values: list[float], share: float) -> None:
    exact = sorted(values)[max(0, -(-int(share * 1000) * len(values) // 1000) - 1)]
    assert filled(values).percentile(share) == pytest.approx(exact, rel=0.0105)


@given(times, times)
def test_merging_is_adding(left: list[float], right: list[float]) -> None:
    merged = filled(left)
    merged.merge(filled(right))
    both = filled(left + right)
    assert merged.buckets == both.buckets
    assert merged.percentiles().p99 == both.percentiles().p99
    assert (merged.count, merged.most) == (both.count, both.most)
    assert merged.total == pytest.approx(both.total)


def test_counts_and_zero() -> None:
    histogram = Histogram()
    assert histogram.percentiles() == Percentiles()
    histogram.add(0.0, 3)
    histogram.add(1.0)
    assert histogram.count == 4
    assert histogram.percentile(0.5) == 0.0
    assert histogram.percentile(1.0) == pytest.approx(1.0, rel=0.01)
    values, shares = histogram.curve()
    assert shares == [0.75, 1.0]
    assert values[-1] == 1.0


def test_travels() -> None:
    histogram = filled([0.1, 5.0, 5.1])
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(histogram), type=Histogram) == histogram
    assert Histogram().buckets is not Histogram().buckets
