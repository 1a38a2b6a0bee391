"""From what was counted to what is reported."""

from collections.abc import Iterable

from quire.simulation.fairness import jain_index
from quire.simulation.histogram import Histogram
from quire.simulation.metrics import Metrics, TenantMetrics
from quire.simulation.replica import ReplicaSetup
from quire.simulation.report import (
    Curve,
    Fairness,
    KVReport,
    Preemptions,
    PrefixReport,
    Report,
    RequestCounts,
    Setting,
    Steps,
    TenantReport,
    Throughput,
    TimePoint,
)


def describe_setting(setup: ReplicaSetup, replicas: int, routing: str, workload: str, seed: int | None) -> Setting:
    """What is simulated, in the words of the report."""
    resolved = setup.resolved
    return Setting(
        model=setup.model.name,
        device=setup.device.name,
        num_devices=setup.num_devices * resolved.attention_ranks * resolved.num_stages,
        replicas=replicas,
        policy=resolved.policy,
        routing=routing,
        preemption=resolved.preemption,
        async_steps=setup.async_steps,
        block_size=resolved.kv.block_size,
        num_blocks=resolved.kv.num_blocks,
        num_cpu_blocks=resolved.kv.num_cpu_blocks,
        max_num_seqs=resolved.limits.max_num_seqs,
        max_num_batched_tokens=resolved.limits.max_num_batched_tokens,
        max_model_len=resolved.limits.max_model_len,
        prefix_caching=resolved.enable_prefix_caching,
        target_itl_ms=resolved.target_itl_ms,
        workload=workload,
        seed=seed,
        attention_ranks=resolved.attention_ranks,
    )


def summarise(setting: Setting, metrics: Metrics, weights: dict[str, float]) -> Report:
    """The report of a cluster whose replicas' metrics were added up."""
    tenants = metrics.tenants
    ttft = _together(tenant.ttft for tenant in tenants.values())
    queue = _together(tenant.queue for tenant in tenants.values())
    total = _together(tenant.total for tenant in tenants.values())
    reports = {name: _tenant(tenant, weights.get(name, 1.0)) for name, tenant in sorted(tenants.items())}
    return Report(
        setting=setting,
        requests=_requests(metrics),
        throughput=_throughput(metrics),
        ttft=ttft.percentiles(),
        itl=metrics.itl.percentiles(),
        queue=queue.percentiles(),
        total=total.percentiles(),
        steps=_steps(metrics),
        kv=_kv(metrics),
        prefix=_prefix(metrics),
        preemptions=Preemptions(metrics.preempted_recompute, metrics.preempted_swap, metrics.paused),
        dropped_beams=metrics.dropped_beams,
        tenants=reports,
        fairness=Fairness(_jain(reports), queue.most),
        timeline=_timeline(metrics),
        ttft_curve=Curve(*ttft.curve()),
        itl_curve=Curve(*metrics.itl.curve()),
    )


def _together(histograms: Iterable[Histogram]) -> Histogram:
    total = Histogram()
    for histogram in histograms:
        total.merge(histogram)
    return total


def _requests(metrics: Metrics) -> RequestCounts:
    tenants = metrics.tenants.values()
    return RequestCounts(
        arrived=sum(tenant.arrived for tenant in tenants),
        refused=sum(tenant.refused for tenant in tenants),
        ended=sum(tenant.ended for tenant in tenants),
        reasons=dict(sorted(metrics.reasons.items())),
    )


def _throughput(metrics: Metrics) -> Throughput:
    seconds, ended = metrics.end, sum(tenant.ended for tenant in metrics.tenants.values())
    return Throughput(
        seconds=seconds,
        requests_per_second=_over(ended, seconds),
        input_tokens=metrics.input_tokens,
        output_tokens=metrics.output_tokens,
        output_tokens_per_second=_over(metrics.output_tokens, seconds),
        total_tokens_per_second=_over(metrics.input_tokens + metrics.output_tokens, seconds),
        # a step planned ahead may run on for a moment after the last request has ended
        busy=min(1.0, _over(metrics.busy, seconds * metrics.replicas)),
    )


def _steps(metrics: Metrics) -> Steps:
    return Steps(
        count=metrics.steps,
        mean_seconds=_over(metrics.busy, metrics.steps),
        mean_running=_over(metrics.running, metrics.busy),
        most_running=metrics.most_running,
        mean_waiting=_over(metrics.waiting, metrics.busy),
        mean_tokens=_over(metrics.step_tokens, metrics.steps),
    )


def _kv(metrics: Metrics) -> KVReport:
    kv, reserved = metrics.kv, metrics.reservations
    return KVReport(
        mean_used=_over(kv.used, metrics.busy),
        peak_used=kv.peak,
        waste=_over(kv.wasted_slots, kv.allocated_slots),
        contiguous_waste={
            "whole context": reserved.waste(reserved.whole_context),
            "power of two": reserved.waste(reserved.power_of_two),
            "exact length": reserved.waste(reserved.exact),
        },
        mean_blocks=_over(kv.held_blocks, metrics.busy) * metrics.replicas,
        mean_blocks_unshared=_over(kv.unshared_blocks, metrics.busy) * metrics.replicas,
        sharing_saved=1 - kv.held_blocks / kv.unshared_blocks if kv.unshared_blocks else 0.0,
    )


def _prefix(metrics: Metrics) -> PrefixReport:
    return PrefixReport(
        queries=metrics.prefix_queries,
        hits=metrics.prefix_hits,
        hit_rate=_over(metrics.prefix_tokens_saved, metrics.prefix_tokens_asked),
        tokens_saved=metrics.prefix_tokens_saved,
        evictions=metrics.prefix_evictions,
    )


def _tenant(metrics: TenantMetrics, weight: float) -> TenantReport:
    return TenantReport(
        arrived=metrics.arrived,
        ended=metrics.ended,
        refused=metrics.refused,
        output_tokens=metrics.output_tokens,
        weight=weight,
        ttft=metrics.ttft.percentiles(),
        queue=metrics.queue.percentiles(),
        total=metrics.total.percentiles(),
        contended_rate=metrics.contended_service / metrics.contended_time if metrics.contended_time else None,
    )


def _jain(tenants: dict[str, TenantReport]) -> float | None:
    rates = [tenant.contended_rate / tenant.weight for tenant in tenants.values() if tenant.contended_rate is not None]
    return jain_index(rates) if len(rates) > 1 else None


def _timeline(metrics: Metrics) -> list[TimePoint]:
    width = metrics.timeline.width
    return [
        TimePoint(
            time=(position + 0.5) * width,
            output_tokens_per_second=step.output_tokens / width,
            input_tokens_per_second=step.input_tokens / width,
            running=step.running / width,
            waiting=step.waiting / width,
            kv_used=step.used / width / max(1, metrics.replicas),
        )
        for position, step in enumerate(metrics.timeline.bins)
    ]


def _over(value: float, total: float) -> float:
    return value / total if total else 0.0
