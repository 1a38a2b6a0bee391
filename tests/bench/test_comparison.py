"""What counts as a change."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.bench.comparison import compare
from quire.bench.measure import Better, Measure


def runs(middle: float, noise: float, count: int, samples: int, seed: int) -> list[list[float]]:
    draw = Random(seed)
    return [[middle * draw.uniform(1 - noise, 1 + noise) for _ in range(samples)] for _ in range(count)]


def verdict(before: list[list[float]], after: list[list[float]], better: Better = "lower") -> str:
    (change,) = compare([Measure("x", "s", better, before)], [Measure("x", "s", better, after)], 0.05)
    return change.verdict


@pytest.mark.parametrize("samples", [1, 100])
def test_a_difference_beyond_noise_counts(samples: int) -> None:
    before, after = runs(1.0, 0.02, 5, samples, 1), runs(1.3, 0.02, 5, samples, 2)
    assert verdict(before, after) == "slower"
    assert verdict(after, before) == "faster"
    assert verdict(before, after, "higher") == "faster"


def test_a_difference_inside_the_noise_does_not() -> None:
    assert verdict(runs(1.0, 0.5, 5, 1, 1), runs(1.1, 0.5, 5, 1, 2)) == "same"


def test_a_difference_inside_the_margin_does_not() -> None:
    assert verdict(runs(1.0, 0.001, 5, 100, 1), runs(1.03, 0.001, 5, 100, 2)) == "same"


def test_one_run_has_twice_the_margin() -> None:
    assert verdict(runs(1.0, 0.001, 1, 100, 1), runs(1.08, 0.001, 1, 100, 2)) == "same"
    assert verdict(runs(1.0, 0.001, 1, 100, 1), runs(1.15, 0.001, 1, 100, 2)) == "slower"


def test_single_numbers_are_not_judged() -> None:
    (change,) = compare(
        [Measure("rate", "tok/s", "higher", [[100.0]])], [Measure("rate", "tok/s", "higher", [[50.0]])], 0.05
    )
    assert (change.verdict, change.interval, change.gain) == ("unknown", None, 0.5)


@given(st.integers(0, 1000), st.sampled_from(["lower", "higher"]))
def test_a_report_is_the_same_as_itself(seed: int, better: Better) -> None:
    same = runs(1.0, 0.3, 3, 5, seed)
    assert verdict(same, same, better) == "same"


def test_false_alarms_are_rare() -> None:
    """Five runs of 30 samples, whose runs themselves differ: chance alone must seldom be called a change."""
    alarms = 0
    for seed in range(60):
        draw = Random(seed)
        first, second = (
            [[draw.gauss(shift, 0.1) for _ in range(30)] for shift in (draw.gauss(1, 0.05) for _ in range(5))]
            for _ in range(2)
        )
        alarms += verdict(first, second) != "same"
    assert alarms <= 6


def test_only_common_quantities_are_compared() -> None:
    one, other = Measure("a", "s", "lower", [[1.0]]), Measure("b", "s", "lower", [[1.0]])
    assert compare([one], [other], 0.05) == []
    assert compare([Measure("a", "s", "lower", [[]])], [one], 0.05) == []
