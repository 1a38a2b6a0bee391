"""Which pictures a report has, by file name: distributions, latency over load, the server over time, kernels."""

from collections.abc import Sequence

from quire.bench.measure import Measure, median, percentile
from quire.bench.objectives import parse_objectives
from quire.bench.report import LoadPoint, Report
from quire.observe.bench_plots import (
    LoadCurve,
    PeerBars,
    ServerTimeline,
    bars_picture,
    distribution_picture,
    load_picture,
    shares_picture,
    timeline_picture,
)

LATENCIES = ("ttft", "tpot", "itl", "e2e")


def pictures(report: Report) -> dict[str, bytes]:
    """PNG files by name; which there are follows from what was measured."""
    made: dict[str, bytes] = {}
    many = {measure.name: measure.samples for measure in report.measures if _is_latency(measure)}
    if many and report.sweep is None:
        made["latency.png"] = distribution_picture(report.title, many)
    if report.sweep is not None and len(report.points) > 1:
        made["load.png"] = _load(report, report.sweep.over)
    if report.kind == "startup":
        made["parts.png"] = bars_picture(report.title, [_parts(report.measures)])
    if report.floors:
        made["kernels.png"] = shares_picture(report.title, _shares(report))
    timeline = _timeline(report.points)
    if timeline is not None:
        made["server.png"] = timeline_picture(report.title, timeline)
    return made


def _shares(report: Report) -> dict[str, dict[str, float]]:
    """By op and case: how much of the machine's limit was reached."""
    shares: dict[str, dict[str, float]] = {}
    for measure in report.measures:
        if measure.name in report.floors and measure.samples:
            op, _, case = measure.name.partition(": ")
            shares.setdefault(op, {})[case] = report.floors[measure.name] / median(measure.samples)
    return shares


def _is_latency(measure: Measure) -> bool:
    return measure.unit == "s" and not measure.is_single


def _parts(measures: Sequence[Measure]) -> PeerBars:
    """The seconds of every part, the whole first."""
    values = {measure.name: sorted(measure.samples) for measure in measures}
    bars = {name: (percentile(each, 50), each[0], each[-1]) for name, each in values.items()}
    return PeerBars("median and spread", bars, "seconds")


def _load(report: Report, over: str) -> bytes:
    assert report.sweep is not None
    bounds = parse_objectives(report.sweep.objectives.split()).bounds if report.sweep.objectives else {}
    curves = []
    for name in LATENCIES:
        found = [(point.load or 0.0, sorted(_samples(point, name))) for point in report.points]
        known = [(load, samples) for load, samples in found if samples]
        if known:
            loads = [load for load, _ in known]
            medians, highs = ([percentile(samples, share) for _, samples in known] for share in (50, 99))
            curves.append(LoadCurve(name, loads, medians, highs, bounds.get(name)))
    rates = {
        name: [_mean(_samples(point, f"{name} tokens a second")) for point in report.points]
        for name in ("input", "output")
    }
    label = "requests a second" if over == "rate" else "requests at a time"
    return load_picture(report.title, label, curves, [point.load or 0.0 for point in report.points], rates)


def _samples(point: LoadPoint, name: str) -> list[float]:
    return next((measure.samples for measure in point.measures if measure.name == name), [])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _timeline(points: Sequence[LoadPoint]) -> ServerTimeline | None:
    """All runs, one behind the other; None where the server said nothing of itself."""
    times: list[float] = []
    looks = []
    begin = 0.0
    for run in (run for point in points for run in point.runs):
        times += [begin + look.time for look in run.gauges]
        looks += run.gauges
        begin += run.seconds
    if len(looks) < 2:
        return None
    return ServerTimeline(
        times, [look.running for look in looks], [look.waiting for look in looks], [look.kv for look in looks]
    )
