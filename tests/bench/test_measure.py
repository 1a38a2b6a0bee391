"""Percentiles and spreads of samples."""

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.bench.measure import Measure, parse_percentiles, percentile, spread
from quire.core.errors import ConfigError

SAMPLES = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=60)


@given(SAMPLES, st.floats(0, 100))
def test_percentiles_are_numpys(samples: list[float], share: float) -> None:
    assert percentile(sorted(samples), share) == pytest.approx(numpy.percentile(samples, share), rel=1e-9, abs=1e-3)


@given(SAMPLES)
def test_spread_is_ordered(samples: list[float]) -> None:
    found = spread(samples, (90, 99.9))
    assert found is not None
    assert found.count == len(samples)
    assert list(found.percentiles) == ["p50", "p90", "p99.9"]
    assert found.least <= found.median <= found.percentiles["p90"] <= found.percentiles["p99.9"] <= found.most
    assert found.mean == pytest.approx(float(numpy.mean(samples)), rel=1e-9, abs=1e-3)
    assert found.deviation == pytest.approx(float(numpy.std(samples)), rel=1e-6, abs=1e-3)


def test_nothing_has_no_spread() -> None:
    assert spread([], (50,)) is None


def test_a_measure_knows_whether_runs_have_one_sample() -> None:
    assert Measure("rate", "tok/s", "higher", [[1.0], [2.0], []]).is_single
    assert not Measure("ttft", "s", "lower", [[1.0, 2.0]]).is_single


@pytest.mark.parametrize("text", ["", "x", "50,", "101", "-1", "50;90"])
def test_wrong_percentiles_are_named(text: str) -> None:
    with pytest.raises(ConfigError, match="--percentiles"):
        parse_percentiles(text)
    assert parse_percentiles("50, 99.9") == (50, 99.9)
