"""Reports: plain numbers that follow from what was counted, and survive JSON."""

import msgspec
import pytest

from quire.simulation.metrics import Metrics, TenantMetrics
from quire.simulation.report import Report
from quire.simulation.summary import describe_setting, summarise
from quire.simulation.workload import SimulatedRequest
from tests.simulation.setups import make_requests, make_setup, run


def report_of(metrics: Metrics, weights: dict[str, float] | None = None) -> Report:
    return summarise(describe_setting(make_setup(), 1, "none", "words", 0), metrics, weights or {})


def test_numbers_follow() -> None:
    requests = [*make_requests(30, every=0.05, tenant="a"), SimulatedRequest(99, 2.0, 999, 5, tenant="b")]
    metrics = run(make_setup(), requests)
    report = report_of(metrics)
    assert report.requests.arrived == 31
    assert (report.requests.refused, report.requests.ended) == (1, 30)
    assert report.throughput.seconds == metrics.end
    assert report.throughput.output_tokens_per_second == pytest.approx(metrics.output_tokens / metrics.end)
    assert 0 < report.throughput.busy < 1
    assert 1 <= report.steps.mean_running <= report.steps.most_running <= 8
    assert report.ttft.count == 30
    assert report.ttft.p50 <= report.ttft.p90 <= report.ttft.p99 <= report.ttft.most
    assert report.fairness.jain is None
    assert report.fairness.longest_wait == report.queue.most
    tokens = sum(point.output_tokens_per_second for point in report.timeline) * metrics.timeline.width
    assert tokens == pytest.approx(metrics.output_tokens, rel=0.1), "async steps sample a few tokens nobody reads"
    assert report.itl_curve.shares[-1] == pytest.approx(1.0)


def test_json_and_back() -> None:
    report = report_of(run(make_setup(), make_requests(5)))
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report


def test_an_empty_cluster_has_a_report_too() -> None:
    report = report_of(Metrics())
    assert report.throughput.output_tokens_per_second == 0
    assert report.kv.waste == report.kv.sharing_saved == 0


def test_a_starved_tenant_counts() -> None:
    metrics = Metrics(tenants={"a": TenantMetrics(), "b": TenantMetrics()})
    for tenant in metrics.tenants.values():
        tenant.contended_time = 10.0
    metrics.tenants["a"].contended_service = 100.0
    assert report_of(metrics).fairness.jain == pytest.approx(0.5)
    metrics.tenants["b"].contended_service = 300.0
    assert report_of(metrics, {"b": 3.0}).fairness.jain == pytest.approx(1.0)
