"""Where a benchmark's report goes: tables on standard output, and files that were asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from quire.bench.measure import parse_percentiles
from quire.bench.report import Report, write_report
from quire.bench.summary_rows import (
    Grid,
    count_rows,
    latency_grid,
    single_grid,
    sweep_grid,
    sweep_verdict,
)
from quire.core.errors import ConfigError, QuireError

if TYPE_CHECKING:
    from quire.bench.pictures import Pictures


@dataclass(frozen=True, slots=True)
class OutputConfig:
    """What is told, and where it is kept."""

    percentiles: str = "90,95,99"
    """Which percentiles the tables show beside mean and median."""
    json: Path | None = None
    """Write everything that was measured to this file, for `quire bench compare`."""
    html: Path | None = None
    """Write a verdict, charts and tables to this one HTML file, which needs nothing else."""
    plot: Path | None = None
    """Write the charts to this folder as SVG files."""

    def __post_init__(self) -> None:
        parse_percentiles(self.percentiles)
        for path in (self.json, self.html):
            if path is not None and not path.expanduser().absolute().parent.is_dir():
                raise ConfigError(f"cannot write {path}: there is no folder {path.expanduser().absolute().parent}.")
        if self.plot is not None and self.plot.expanduser().exists() and not self.plot.expanduser().is_dir():
            raise ConfigError(f"--plot is {self.plot}, which is a file; name a folder.")

    @property
    def shares(self) -> tuple[float, ...]:
        return parse_percentiles(self.percentiles)


OutputOptions = Annotated[OutputConfig, Parameter(name="*", group=Group("Output", sort_key=9))]
OUTPUT = OutputConfig()
_WIDEST_NAME = 44


def tell(report: Report, output: OutputConfig, extra: Sequence[Grid] = ()) -> None:
    """Print the tables and write the files."""
    grids = [*extra, *grids_of(report, output.shares)]
    verdict = sweep_verdict(report)
    print_grids(report.title, grids, report.notes if verdict is None else [verdict, *report.notes])
    if output.json is not None:
        write_report(report, output.json)
    if output.plot is None and output.html is None:
        return
    from quire.bench.pictures import pictures

    drawn = pictures(report)
    if output.plot is not None:
        _write_pictures(drawn, output.plot.expanduser())
    if output.html is not None:
        from quire.bench.page import write_page

        write_page(report, grids, drawn, output.html)


def grids_of(report: Report, shares: Sequence[float]) -> list[Grid]:
    """The tables of a report, whatever its kind."""
    if report.sweep is not None:
        found: list[Grid | None] = [sweep_grid(report, max(shares))]
        errors = [row for point in report.points for row in count_rows(point.runs) if row[0].startswith("error")]
        found.append(Grid("Errors", ["", ""], errors) if errors else None)
    elif report.kind == "kernels":
        found = []  # their own table says more
    else:
        found = [
            single_grid("Totals", report.measures),
            latency_grid("Latency", report.measures, shares),
            Grid("Run", ["", ""], count_rows(report.points[0].runs)) if report.points else None,
        ]
    return [grid for grid in found if grid is not None]


def print_grids(
    title: str, grids: Sequence[Grid], notes: Sequence[str] = (), *, shrinks: Literal["numbers", "names"] = "numbers"
) -> None:
    """`shrinks` is what gives way in a terminal too narrow for both."""
    console = Console(highlight=False)
    console.print(Text(title, style="bold"))
    for grid in grids:
        table = Table(box=SIMPLE_HEAD, title=grid.title, title_justify="left", show_header=any(grid.header))
        for place, name in enumerate(grid.header):
            is_name = place == 0
            keeps = len(grid.header) > 2 and is_name == (shrinks == "numbers")
            least = min(_WIDEST_NAME, max(len(row[place]) for row in grid.rows)) if keeps else 1
            table.add_column(name, justify="left" if is_name else "right", overflow="fold", min_width=least)
        for row in grid.rows:
            table.add_row(*map(Text, row))
        console.print(table)
    for note in notes:
        console.print(Text(note))


def _write_pictures(drawn: "Pictures", folder: Path) -> None:
    from quire.bench.svg_chart import standalone

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, picture in drawn.items():
            file = "".join(letter if letter.isalnum() else "-" for letter in name) + ".svg"
            (folder / file).write_text(standalone(picture.svg()), encoding="utf-8")
    except OSError as error:
        raise QuireError(f"cannot write the plots to {folder}: {error.strerror or error}.") from error
