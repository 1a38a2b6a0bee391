"""A report as rows of text, the same for a terminal's table and a page: quantities with their spread, and counts."""

from collections.abc import Sequence
from dataclasses import dataclass

from quire.bench.measure import Measure, percentile_name, spread
from quire.bench.report import LoadPoint, Report
from quire.bench.run_summary import RunSummary
from quire.core.draft_counts import DraftCounts


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: the first column is names."""

    title: str
    header: list[str]
    rows: list[list[str]]


def latency_grid(title: str, measures: Sequence[Measure], percentiles: Sequence[float]) -> Grid | None:
    """Quantities with many samples a run."""
    many = [measure for measure in measures if not measure.is_single]
    rows = []
    for measure in many:
        found = spread(measure.samples, percentiles)
        assert found is not None
        values = [found.mean, found.median, *(found.percentiles[percentile_name(share)] for share in percentiles)]
        scale, unit = (1e3, "ms") if measure.unit == "s" else (1.0, measure.unit)
        rows.append([f"{measure.name} ({unit})", *(digits(value * scale) for value in values), f"{found.count:,}"])
    header = ["", "mean", "median", *(percentile_name(share) for share in percentiles), "samples"]
    return Grid(title, header, rows) if rows else None


def single_grid(title: str, measures: Sequence[Measure]) -> Grid | None:
    """Quantities with one sample a run: the median of the runs, and how far they lie apart."""
    rows = []
    for measure in measures:
        if not measure.is_single:
            continue
        found = spread(measure.samples, ())
        assert found is not None
        scale, unit = (1e3, "ms") if measure.unit == "s" and found.median < 1 else (1.0, measure.unit)
        apart = f"{digits(found.least * scale)} – {digits(found.most * scale)}" if found.count > 1 else ""
        rows.append([measure.name, f"{digits(found.median * scale)} {unit}", apart])
    return Grid(title, ["", "median", "spread"], rows) if rows else None


def count_rows(runs: Sequence[RunSummary]) -> list[list[str]]:
    """What was sent and what became of it, over all repeats."""
    rows = [
        ["requests, completed", f"{sum(run.requests for run in runs):,}, {sum(run.completed for run in runs):,}"],
        ["seconds", " + ".join(digits(run.seconds) for run in runs)],
        [
            "under way, mean / most",
            f"{_mean([r.mean_concurrency for r in runs]):.1f} / {max(r.peak_concurrency for r in runs)}",
        ],
        ["sent late (worst hundredth)", f"{max(run.lateness for run in runs) * 1e3:.2f} ms"],
    ]
    for what in ("input", "output", "cached"):
        counts = [getattr(run, f"{what}_tokens") for run in runs]
        if all(count is not None for count in counts):
            rows.append([f"{what} tokens", f"{sum(counts):,}"])
    rows += [["tokens counted by", ", ".join(sorted({who for run in runs for who in run.counted_by})) or "nobody"]]
    drafted = [run.drafts for run in runs if run.drafts is not None]
    if drafted:
        total = sum(drafted, DraftCounts())
        rows.append(["drafted tokens, accepted", f"{total.tokens:,}, {total.accepted:,}"])
    # the first and the last look are at an idle server
    used = [look.kv for run in runs for look in run.gauges if look.kv is not None and 0 < look.time <= run.seconds]
    if used:
        rows.append(["KV cache in use, mean / most", f"{_mean(used):.1%} / {max(used):.1%}"])
    shares = [run.share_met for run in runs if run.share_met is not None]
    if shares:
        rows.append(["kept to the objectives", f"{_mean(shares):.1%}"])
    errors = {kind for run in runs for kind in run.errors}
    for kind in sorted(errors):
        example = next(run.error_examples[kind] for run in runs if kind in run.error_examples)
        rows.append([f"error: {kind}", f"{sum(run.errors.get(kind, 0) for run in runs):,} × {example[:120]}"])
    return rows


def sweep_grid(report: Report, share: float) -> Grid:
    """One row a load: rates, and the median and a high percentile of each latency."""
    assert report.sweep is not None
    names = ("ttft", "tpot", "e2e")
    high = percentile_name(share)
    header = ["load", "done", "req/s", "out tok/s", *names]
    header += ["kept"] if report.sweep.objectives else []
    rows = [_sweep_row(point, names, share, bool(report.sweep.objectives)) for point in report.points]
    return Grid(f"By {report.sweep.over}; latencies p50 / {high} in ms", header, rows)


def sweep_verdict(report: Report) -> str | None:
    """What a search found, in words; None without one."""
    sweep = report.sweep
    if sweep is None or not sweep.objectives:
        return None
    bounds = [part.split(":") for part in sweep.objectives.split()]
    goal = f"{sweep.share:.0%} of the requests within " + " and ".join(f"{name} {bound} ms" for name, bound in bounds)
    if sweep.highest_good is None:
        return f"No {sweep.over} that was tried holds {goal}."
    more = "" if sweep.lowest_bad is None else f"; {sweep.lowest_bad:g} does not"
    return f"The highest {sweep.over} that holds {goal} is {sweep.highest_good:g}{more}."


def _sweep_row(point: LoadPoint, names: Sequence[str], share: float, with_kept: bool) -> list[str]:
    by_name = {measure.name: measure for measure in point.measures}

    def latency(name: str) -> str:
        found = spread(by_name[name].samples, [share]) if name in by_name else None
        if found is None:
            return "–"
        return f"{digits(found.median * 1e3)} / {digits(found.percentiles[percentile_name(share)] * 1e3)}"

    rates = [_mean(by_name[name].samples) if name in by_name else None for name in _RATES]
    cells = [f"{point.load:g}", f"{sum(run.completed for run in point.runs):,}"]
    cells += ["–" if rate is None else digits(rate) for rate in rates]
    cells += [latency(name) for name in names]
    return [*cells, f"{_mean([run.share_met or 0.0 for run in point.runs]):.1%}"] if with_kept else cells


_RATES = ("requests a second", "output tokens a second")


def digits(value: float) -> str:
    """Four of them at most, and never an exponent."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}" if value >= 0.001 or value == 0 else f"{value:.6f}"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
