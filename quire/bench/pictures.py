"""Which charts a report has, by name: distributions, latency over load, the server over time, parts, kernels."""

from collections.abc import Sequence
from itertools import pairwise

from quire.bench.gauges import drafts_between
from quire.bench.measure import Measure, median, percentile
from quire.bench.objectives import Objectives, parse_objectives
from quire.bench.report import LoadPoint, Report, Sweep
from quire.bench.summary_rows import digits
from quire.bench.svg_chart import Bar, BarChart, Limit, Line, LineChart

LATENCIES = {
    "ttft": "Time to first token",
    "tpot": "Time per token",
    "itl": "Time between tokens",
    "e2e": "Whole answer",
}
_MOST_POINTS = 300
"""Of one curve: more cannot be told apart on a card."""
_MOST_BARS = 16
"""On one card."""
_BY_LOAD = {"rate": "requests a second", "concurrency": "requests at a time"}

Pictures = dict[str, LineChart | BarChart]


def pictures(report: Report) -> Pictures:
    """Which there are follows from what was measured."""
    made: Pictures = {}
    if report.sweep is not None and len(report.points) > 1:
        made |= _by_load(report, report.sweep)
    elif report.sweep is None:
        bounds = _objectives(report).bounds
        for measure in report.measures:
            if measure.unit == "s" and not measure.is_single:
                made[f"latency-{measure.name}"] = _distribution(measure, bounds.get(measure.name))
    if report.kind == "startup":
        made["parts"] = _parts(report.measures)
    made |= _kernels(report)
    return made | _timeline(report.points)


def _objectives(report: Report) -> Objectives:
    given = report.sweep.objectives if report.sweep is not None else report.setting.get("goodput")
    return parse_objectives(str(given).split()) if given else Objectives({})


def _distribution(measure: Measure, bound: float | None) -> LineChart:
    """The share of samples that took at most so long."""
    ordered = sorted(1e3 * sample for sample in measure.samples)
    count = len(ordered)
    places = sorted({round(step * (count - 1) / (_MOST_POINTS - 1)) for step in range(_MOST_POINTS)})
    points = [(ordered[place], 100 * (place + 1) / count) for place in places]
    limit = None
    if bound is not None:
        within = sum(sample <= 1e3 * bound for sample in ordered) / count
        limit = Limit(1e3 * bound, f"limit {digits(1e3 * bound)} ms: {within:.1%} within")
    title = f"{LATENCIES.get(measure.name, measure.name)}: % at most so long"
    line = Line(measure.name, [(ordered[0], 0.0), *points], is_stepped=True)
    return LineChart(title, "milliseconds", [line], x_limit=limit, may_be_log=True, y_high=100)


def _by_load(report: Report, sweep: Sweep) -> Pictures:
    made: Pictures = {}
    bounds, over = _objectives(report).bounds, _BY_LOAD[sweep.over]
    for name, title in LATENCIES.items():
        found = [(point.load or 0.0, sorted(_samples(point, name))) for point in report.points]
        known = [(load, samples) for load, samples in found if samples]
        if not known:
            continue
        lines = [
            Line(label, [(load, 1e3 * percentile(samples, share)) for load, samples in known], has_dots=True)
            for label, share in (("median", 50), ("p99", 99))
        ]
        bound = bounds.get(name)
        limit = None if bound is None else Limit(1e3 * bound, f"limit {digits(1e3 * bound)} ms")
        made[f"load-{name}"] = LineChart(f"{title} (ms)", over, lines, y_limit=limit)
    rates = [
        Line(name, [(point.load or 0.0, _mean(_samples(point, f"{name} tokens a second"))) for point in report.points],
             has_dots=True)
        for name in ("output", "input")
    ]  # fmt: skip
    made["load-throughput"] = LineChart("Tokens a second", over, rates)
    if sweep.objectives:
        made["load-kept"] = _kept(report.points, sweep, over)
    return made


def _kept(points: Sequence[LoadPoint], sweep: Sweep, over: str) -> LineChart:
    kept = [
        (point.load or 0.0, 100 * _mean([run.share_met for run in point.runs if run.share_met is not None]))
        for point in points
    ]
    limit = Limit(100 * sweep.share, f"wanted: {sweep.share:.0%}")
    line = Line("kept", kept, has_dots=True)
    return LineChart("% of requests within every limit", over, [line], y_limit=limit, lower_is_bad=True, y_high=100)


def _parts(measures: Sequence[Measure]) -> BarChart:
    """The seconds of every part, the whole first."""
    bars = []
    for measure in measures:
        ordered = sorted(measure.samples)
        middle = percentile(ordered, 50)
        text = f"{digits(middle)} s" if middle >= 1 else f"{digits(1e3 * middle)} ms"
        bars.append(Bar(measure.name, middle, text, ordered[0], ordered[-1]))
    return BarChart("Where the time went: median and spread", bars)


def _kernels(report: Report) -> Pictures:
    """By op: how much of the machine's limit each case reaches."""
    by_op: dict[str, list[Bar]] = {}
    for measure in report.measures:
        if measure.name in report.floors and measure.samples:
            op, _, case = measure.name.partition(": ")
            share = report.floors[measure.name] / median(measure.samples)
            by_op.setdefault(op, []).append(Bar(case, share, f"{share:.0%}"))
    limit = Limit(1.0, "the machine's limit")
    made: Pictures = {}
    for op, bars in by_op.items():
        for first in range(0, len(bars), _MOST_BARS):
            part = bars[first : first + _MOST_BARS]
            numbers = f" {first + 1} to {first + len(part)}" if len(bars) > _MOST_BARS else ""
            made[f"kernels-{op}{numbers}"] = BarChart(f"{op}{numbers}", part, limit)
    return made


def _timeline(points: Sequence[LoadPoint]) -> Pictures:
    """All runs, one after the other; nothing where the server said nothing of itself."""
    looks = []
    begin = 0.0
    for run in (run for point in points for run in point.runs):
        looks += [(begin + look.time, look) for look in run.gauges]
        begin = max(begin + run.seconds, looks[-1][0] if looks else 0.0)
    if len(looks) < 2:
        return {}
    step = max(1, len(looks) // _MOST_POINTS)
    running, waiting, used = (
        [(time, scale * value) for time, look in looks[::step] if (value := getattr(look, name)) is not None]
        for name, scale in (("running", 1), ("waiting", 1), ("kv", 100))
    )
    made: Pictures = {}
    if running or waiting:
        lines = [Line("running", running), Line("waiting", waiting)]
        made["server-requests"] = LineChart("Requests in the server", "seconds", lines)
    accepted = _accepted(points)
    if accepted:
        made["server-drafts"] = LineChart("Drafts: % right", "seconds", [Line("right", accepted)], y_high=100)
    if used:
        made["server-kv"] = LineChart("KV cache: % in use", "seconds", [Line("in use", used)])
    return made


def _accepted(points: Sequence[LoadPoint]) -> list[tuple[float, float]]:
    """By the moment, the share of drafted tokens that were right between two looks of the same run."""
    found = []
    begin = 0.0
    for run in (run for point in points for run in point.runs):
        looks = run.gauges[:: max(1, len(run.gauges) // _MOST_POINTS)]
        for before, after in pairwise(looks):
            drafts = drafts_between(before, after)
            if drafts is not None and drafts.tokens:
                found.append((begin + after.time, 100 * drafts.share_accepted))
        begin += max(run.seconds, looks[-1].time if looks else 0.0)
    return found


def _samples(point: LoadPoint, name: str) -> list[float]:
    return next((measure.samples for measure in point.measures if measure.name == name), [])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
