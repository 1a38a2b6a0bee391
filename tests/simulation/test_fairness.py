"""Fairness: Jain's index, and service that counts only while tenants compete."""

import pytest

from quire.simulation.fairness import Contention, jain_index
from quire.simulation.metrics import Metrics


def test_jain() -> None:
    assert jain_index([3.0, 3.0, 3.0]) == pytest.approx(1.0)
    assert jain_index([5.0, 0.0]) == pytest.approx(0.5)
    assert jain_index([1.0, 9.0]) == pytest.approx(100 / 164)
    assert jain_index([0.0, 0.0]) == 1.0


def test_only_contention_counts() -> None:
    metrics = Metrics()
    contention = Contention(metrics)
    contention.arrived("a")
    contention.decoding("a", 2)
    contention.step(1.0, [("a", 10)])
    assert metrics.tenants == {}, "nobody to compete with"
    contention.arrived("b")
    contention.decoding("c", 1)
    contention.step(0.5, [("b", 10), ("c", 7)])
    assert metrics.tenant("a").contended_service == 4
    assert metrics.tenant("b").contended_service == 10
    assert metrics.tenant("a").contended_time == metrics.tenant("b").contended_time == 0.5
    assert "c" not in metrics.tenants, "nothing of c waits"
    contention.left_queue("b")
    contention.step(0.5, [])
    assert metrics.tenant("a").contended_time == 0.5
