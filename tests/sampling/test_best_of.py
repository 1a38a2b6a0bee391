"""best-of: order, ties, failures."""

import math

import pytest

from quire.core.errors import InvalidRequest
from quire.sampling.best_of import best_of


def test_the_most_likely_come_first() -> None:
    assert best_of([-3.0, -1.0, -2.0, -4.0], 2) == [1, 2]


def test_the_earlier_wins_a_tie() -> None:
    assert best_of([-1.0, -2.0, -1.0, -2.0], 4) == [0, 2, 1, 3]


def test_failed_sequences_come_last() -> None:
    assert best_of([math.nan, -math.inf, -9.0], 3) == [2, 1, 0]


@pytest.mark.parametrize("n", [0, 3])
def test_bounds(n: int) -> None:
    with pytest.raises(InvalidRequest, match="1 to best_of, which is 2"):
        best_of([-1.0, -2.0], n)
