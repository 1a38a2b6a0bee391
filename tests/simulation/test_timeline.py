"""Timelines: bounded, and nothing is lost when bins are merged."""

import pytest

from quire.simulation.timeline import FINEST, MOST_BINS, Bin, Timeline


def total(timeline: Timeline) -> float:
    return sum(each.output_tokens for each in timeline.bins)


def test_long_runs_stay_bounded_and_complete() -> None:
    timeline = Timeline()
    for step in range(20_000):
        timeline.add(step * 0.01, (step + 1) * 0.01, Bin(output_tokens=2.0, busy=0.01))
    assert len(timeline.bins) <= MOST_BINS
    assert total(timeline) == pytest.approx(40_000)
    middle = timeline.bins[len(timeline.bins) // 2]
    assert middle.busy == pytest.approx(timeline.width)


def test_a_long_step_is_spread() -> None:
    timeline = Timeline()
    timeline.add(FINEST / 2, 4 * FINEST, Bin(output_tokens=7.0))
    assert [each.output_tokens for each in timeline.bins] == pytest.approx([1.0, 2.0, 2.0, 2.0, 0.0])


def test_replicas_of_different_length_add_up() -> None:
    short, long = Timeline(), Timeline()
    short.add(0.0, 1.0, Bin(output_tokens=10.0))
    long.add(0.0, 1000.0, Bin(output_tokens=100.0))
    for merged, other in ((Timeline(), (short, long)), (Timeline(), (long, short))):
        for each in other:
            merged.merge(each)
        assert merged.width == long.width
        assert total(merged) == pytest.approx(110)
