"""A leak is told from a warm-up and from noise."""

import pytest

from tests.soak.growth import LONG_ENOUGH, growths
from tests.soak.processes import Seen

MIB = 1 << 20


def seen(at: float, memory: float, descriptors: int = 20) -> tuple[float, Seen]:
    return at, Seen(1, 1, "front", "S", int(memory), descriptors, 9)


def life(memory, seconds=600):
    return [seen(at, memory(at)) for at in range(0, seconds + 1, 10)]


@pytest.mark.parametrize(
    ("memory", "is_leak"),
    [
        (lambda at: 100 * MIB, False),
        (lambda at: 100 * MIB + min(at, 180) * MIB, False),
        (lambda at: 100 * MIB + at % 50 * MIB, False),
        (lambda at: 100 * MIB + at * MIB / 5, True),
    ],
    ids=["flat", "warm-up", "to and fro", "leak"],
)
def test_memory(memory, is_leak):
    [found] = [each for each in growths(life(memory)) if each.quantity == "memory"]
    assert found.is_too_much == is_leak


def test_the_slope_is_an_hours():
    [found] = [each for each in growths(life(lambda at: at * MIB)) if each.quantity == "memory"]
    assert found.per_hour == pytest.approx(3600 * MIB)
    assert found.rise == pytest.approx(400 * MIB)


def test_descriptors_leak_too_and_a_short_life_says_nothing():
    lost = [seen(at, MIB, 20 + at // 10) for at in range(0, 601, 10)]
    assert {each.quantity for each in growths(lost) if each.is_too_much} == {"descriptors"}
    assert growths(life(lambda at: at * MIB, int(LONG_ENOUGH) - 10)) == []
