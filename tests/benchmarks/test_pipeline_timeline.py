"""Arithmetic of the timeline: what a stage computes, and what two compute at once."""

import pytest

from benchmarks.pipeline_timeline import _busy, _overlap


def test_waits_are_no_work() -> None:
    spans = [("wait", 1, 1.0, 2.0), ("step", 1, 0.5, 4.0), ("step", 2, 5.0, 6.0)]
    assert _busy(spans) == [(0.5, 1.0), (2.0, 4.0), (5.0, 6.0)]


def test_what_overlaps() -> None:
    assert _overlap([(0.0, 2.0), (3.0, 4.0)], [(1.0, 3.5)]) == pytest.approx(1.5)
