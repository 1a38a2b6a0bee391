"""Reservations in one piece: the three ways, by hand."""

import pytest

from quire.simulation.reservation import Reservations


def test_by_hand() -> None:
    tally = Reservations()
    tally.add(prompt=10, output=5, longest=100)
    used = 10 + 11 + 12 + 13 + 14
    assert tally.used == used
    assert tally.waste(tally.whole_context) == pytest.approx(1 - used / 500)
    assert tally.waste(tally.power_of_two) == pytest.approx(1 - used / (5 * 18))
    assert tally.waste(tally.exact) == pytest.approx(1 - used / (5 * 15))


def test_power_of_two_is_rounded_up_and_cut_at_the_context() -> None:
    for output, reserved in ((1, 1), (2, 2), (3, 4), (64, 64), (65, 90)):
        tally = Reservations()
        tally.add(prompt=10, output=output, longest=100)
        assert tally.power_of_two == output * (10 + reserved)


def test_no_output_reserves_nothing_and_sums_merge() -> None:
    tally = Reservations()
    tally.add(prompt=10, output=0, longest=100)
    assert tally == Reservations()
    assert tally.waste(tally.exact) == 0.0
    other = Reservations()
    other.add(prompt=3, output=4, longest=100)
    tally.merge(other)
    assert tally == other
