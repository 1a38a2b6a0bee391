"""What a simulated day came to: a table for people, and a plot as SVG."""

import sys
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from quire.bench.svg_chart import Line, LineChart, beside, standalone
from quire.cli.simulate_report import seconds, spread
from quire.core.errors import QuireError
from quire.simulation.day.report import DayReport

_WIDE = 160


def print_day(report: DayReport) -> None:
    """Print what was simulated and what came of it."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDE)
    console.print(Text.assemble((report.scenario, "bold"), f": {report.words}."), soft_wrap=True)
    table = Table(box=SIMPLE_HEAD)
    table.add_column("")
    table.add_column(f"{report.routing} routing", justify="right")
    for title, rows in _sections(report):
        table.add_row(Text(title, style="bold"))
        for name, value in rows:
            table.add_row(f"  {name}", Text(value))
    console.print(table)


def _sections(report: DayReport) -> list[tuple[str, list[tuple[str, str]]]]:
    tokens, day = report.tokens, report.seconds or 1.0
    requests = [("arrived", f"{report.arrived:,}"), ("ended", f"{report.ended:,}")]
    requests += [("refused, beyond the context", f"{report.refused:,}")] if report.refused else []
    requests += [("cut short by the context", f"{report.cut_short:,}")] if report.cut_short else []
    origins = [("computed", tokens.computed), ("on the device", tokens.device), ("on the host", tokens.host)]
    origins += [("on disk", tokens.disk), ("at a peer", tokens.peer)]
    cluster = [
        ("devices busy, mean / busiest", f"{report.busy:.1%} / {report.busiest:.1%}"),
        ("output tokens a second, mean / peak", f"{report.output_tokens / day:,.0f} / {report.peak_output:,.0f}"),
        ("preempted", f"{report.preempted:,}"),
    ]
    if report.handed_over or report.transferred:
        cluster.append(("answers handed over", f"{report.handed_over:,}"))
        cluster.append(("KV sent", f"{report.transferred / 1e9:,.1f} GB"))
    return [
        ("Requests", requests),
        (
            "Latency: p50 / p90 / p99 / longest",
            [
                ("first token", spread(report.ttft)),
                ("between tokens", spread(report.itl)),
                ("arrival to end", spread(report.total)),
            ],
        ),
        (
            "Tokens of prompts",
            [
                (name, f"{count:,} ({tokens.share(count):.1%})")
                for name, count in origins
                if count or name == "computed"
            ],
        ),
        ("Cluster", cluster),
        (
            "Simulation",
            [
                ("steps, in so many leaps", f"{report.steps:,} in {report.leaps:,}"),
                ("simulated time", seconds(report.seconds)),
                ("took", seconds(report.wall)),
            ],
        ),
    ]


def draw_day(report: DayReport, path: Path) -> None:
    """Draw the day to an SVG file."""
    try:
        path.expanduser().write_text(standalone(beside([chart.svg() for chart in _charts(report)])), encoding="utf-8")
    except OSError as error:
        raise QuireError(f"cannot write the plot {path}: {error.strerror or error}.") from error


def _charts(report: DayReport) -> list[LineChart]:
    # what runs on after midnight is no time of this day
    points = [point for point in report.points if point.hour < 24]
    hours = [point.hour for point in points]

    def line(name: str, values: list[float]) -> Line:
        return Line(name, list(zip(hours, values, strict=True)))

    x = "time of day (hours)"
    return [
        LineChart("Requests a second", x, [line("requests", [p.requests_per_second for p in points])]),
        LineChart(
            "Tokens a second",
            x,
            [
                line("answered", [p.output_tokens_per_second for p in points]),
                line("of prompts, computed", [p.computed_tokens_per_second for p in points]),
            ],
        ),
        LineChart(
            "Time to first token (ms)",
            x,
            [line("p50", [1e3 * p.ttft_p50 for p in points]), line("p99", [1e3 * p.ttft_p99 for p in points])],
        ),
        LineChart("Time between tokens, p99 (ms)", x, [line("p99", [1e3 * p.itl_p99 for p in points])]),
        LineChart("Devices busy (%)", x, [line("busy", [100 * p.busy for p in points])], y_high=100),
        LineChart(
            "Tokens of prompts not computed (%)", x, [line("found", [100 * p.found_share for p in points])], y_high=100
        ),
    ]
