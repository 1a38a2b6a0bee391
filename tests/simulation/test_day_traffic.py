"""Traffic of a day: the curve and the lengths have the published means."""

from itertools import pairwise
from random import Random

import pytest

from quire.simulation.day.curve import DAY, PEAK, VALLEY, moments, relative_rate
from quire.simulation.day.traffic import FASTCHAT, random_conversations


def test_the_curve_has_its_peak_valley_and_mean() -> None:
    rates = [relative_rate(second) for second in range(0, int(DAY), 60)]
    assert max(rates) == pytest.approx(PEAK, rel=1e-3)
    assert min(rates) == pytest.approx(VALLEY, rel=1e-3)
    assert sum(rates) / len(rates) == pytest.approx(1.0, rel=1e-3)


def test_moments_follow_the_curve() -> None:
    times = list(moments(20_000, Random(1)))
    assert len(times) == 20_000
    assert all(a <= b for a, b in pairwise(times))
    at_peak = sum(13 * 3600 <= time < 15 * 3600 for time in times)
    at_night = sum(1 * 3600 <= time < 3 * 3600 for time in times)
    assert at_peak / at_night == pytest.approx(3.3, rel=0.1)


def test_conversations_have_the_published_means() -> None:
    conversations = [list(each.turns) for each in random_conversations(FASTCHAT, 8_000, seed=3)]
    turns = [turn for each in conversations for turn in each]
    assert len(turns) / len(conversations) == pytest.approx(2.0, rel=0.05)
    assert sum(turn.asked for turn in turns) / len(turns) == pytest.approx(69.5, rel=0.1)
    assert sum(turn.answered for turn in turns) / len(turns) == pytest.approx(214.5, rel=0.1)
