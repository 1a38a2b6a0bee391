"""What a report comes to in one sentence, and whether that is good news."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from quire.bench.measure import Measure, median
from quire.bench.report import Report
from quire.bench.run_summary import RunSummary
from quire.bench.summary_rows import digits, sweep_verdict

Tone = Literal["good", "bad", "plain"]
GOOD_SHARE = 0.9
"""Of requests within the objectives, from which one load is good; as `--slo-share` is for sweeps unless it is given."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The first line of a report."""

    text: str
    tone: Tone


def verdict(report: Report) -> Verdict:
    runs = [run for point in report.points for run in point.runs]
    failed = sum(run.requests - run.completed for run in runs)
    if failed:
        share = f"{failed:,} of {sum(run.requests for run in runs):,} requests failed"
        rest = sweep_verdict(report) or (_kept(runs) if runs[0].share_met is not None else None)
        return Verdict(f"{share}. {rest}" if rest else f"{share}.", "bad")
    if report.sweep is not None:
        return _of_sweep(report)
    if runs and runs[0].share_met is not None:
        return Verdict(_kept(runs), "good" if _share(runs) >= GOOD_SHARE else "bad")
    if runs:
        return Verdict(f"All {sum(run.requests for run in runs):,} requests were answered: {_speed(report)}.", "plain")
    return Verdict(_of_kernels(report) if report.floors else _of_measures(report.measures), "plain")


def _of_sweep(report: Report) -> Verdict:
    found = sweep_verdict(report)
    assert report.sweep is not None
    if found is not None:
        return Verdict(found, "bad" if report.sweep.highest_good is None else "good")
    rates = [
        (median(measure.samples), point.load or 0.0)
        for point in report.points
        for measure in point.measures
        if measure.name == "output tokens a second"
    ]
    if not rates:
        return Verdict(f"{len(report.points)} loads were measured.", "plain")
    most, load = max(rates)
    return Verdict(f"At most {digits(most)} output tokens a second, at {report.sweep.over} {load:g}.", "plain")


def _kept(runs: Sequence[RunSummary]) -> str:
    total, seconds = sum(run.requests for run in runs), sum(run.seconds for run in runs)
    kept = _share(runs)
    rate = f"{digits(kept * total / seconds)} good requests a second"
    return f"{kept:.1%} of {total:,} requests kept to every limit: {rate}."


def _share(runs: Sequence[RunSummary]) -> float:
    return sum((run.share_met or 0.0) * run.requests for run in runs) / sum(run.requests for run in runs)


def _speed(report: Report) -> str:
    by_name = {measure.name: measure for measure in report.measures}
    parts = []
    if "output tokens a second" in by_name:
        parts.append(f"{digits(median(by_name['output tokens a second'].samples))} output tokens a second")
    if "ttft" in by_name:
        parts.append(f"the first after {digits(1e3 * median(by_name['ttft'].samples))} ms")
    return ", ".join(parts) or f"{digits(median(by_name['requests a second'].samples))} a second"


def _of_measures(measures: Sequence[Measure]) -> str:
    tokens = [each for each in measures if each.name == "output tokens a second"]
    if not measures:
        return "Nothing was measured."
    first = (tokens or list(measures))[0]
    value = median(first.samples)
    scale, unit = (1e3, "ms") if first.unit == "s" and value < 1 else (1.0, first.unit)
    name = first.name[:1].upper() + first.name[1:]
    return f"{name}: {digits(scale * value)} {unit}, the median of {len(first.runs)} run{'s'[: len(first.runs) > 1]}."


def _of_kernels(report: Report) -> str:
    shares = [
        report.floors[measure.name] / median(measure.samples)
        for measure in report.measures
        if measure.name in report.floors and measure.samples
    ]
    return (
        f"{len(shares)} kernels reach {min(shares):.0%} to {max(shares):.0%} of what the machine can do, "
        f"half of them {median(shares):.0%} or more."
    )
