"""Reports are read as they were written; pages need nothing else."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from quire.bench.gauges import GaugePoint
from quire.bench.measure import Measure
from quire.bench.objectives import parse_objectives
from quire.bench.page import page
from quire.bench.pictures import pictures
from quire.bench.record import RequestRecord
from quire.bench.report import LoadPoint, Report, Sweep, new_report, read_report, write_report
from quire.bench.run_summary import measures, summarize
from quire.bench.summary_rows import Grid, count_rows, latency_grid, single_grid, sweep_grid, sweep_verdict
from quire.bench.sweep import measures_by_load
from quire.core.errors import ConfigError

GAUGES = [GaugePoint(time / 10, float(time % 4), 0.0, time / 20) for time in range(10)]


def point(load: float | None, scale: float = 1.0) -> LoadPoint:
    records = [
        RequestRecord(
            n, 0.0, 0.0, [scale * (n + 1) / 10, scale * (n + 3) / 10], scale * (n + 3) / 10, 8, 4, None, "usage"
        )
        for n in range(5)
    ]
    failed = RequestRecord(5, 0.0, 0.0, ended=0.1, error="http 500", error_text="<script>alert(1)</script>")
    run = [*records, failed]
    summary = summarize(run, parse_objectives(["ttft:300"]), GAUGES)
    return LoadPoint(load, measures([run], [summary]), [summary])


def single_report() -> Report:
    one = point(None)
    return new_report("serve", "a <title>", {"rate": 1.0}, one.measures, points=[one])


def sweep_report() -> Report:
    points = [point(1.0), point(2.0, 3.0)]
    sweep = Sweep("rate", "ttft:300", 0.9, 1.0, 2.0)
    return new_report("serve", "sweep", {}, measures_by_load(points, "rate"), points=points, sweep=sweep)


def test_reports_come_back(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    for report in (single_report(), sweep_report()):
        write_report(report, path)
        found = read_report(path)
        assert (found.kind, found.title, found.sweep, found.machine) == (
            report.kind,
            report.title,
            report.sweep,
            report.machine,
        )
        assert [measure.name for measure in found.measures] == [measure.name for measure in report.measures]
        assert found.measures[0].samples == pytest.approx(report.measures[0].samples, rel=1e-6)


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"kind": 3}'])
def test_other_files_are_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match="no file that quire bench"):
        read_report(path)


def test_tables_say_what_was_measured() -> None:
    report = single_report()
    latency = latency_grid("Latency", report.measures, (90.0, 99.0))
    assert latency is not None
    assert latency.header == ["", "mean", "median", "p90", "p99", "samples"]
    (ttft,) = [row for row in latency.rows if row[0].startswith("ttft")]
    assert ttft == ["ttft (ms)", "300", "300", "460", "496", "5"]
    single = single_grid("Totals", report.measures)
    assert single is not None
    assert ["requests a second", "7.143 req/s", ""] in single.rows
    counts = dict(map(tuple, count_rows(report.points[0].runs)))  # type: ignore[arg-type]
    assert counts["requests, completed"] == "6, 5"
    assert counts["kept to the objectives"] == "50.0%"
    assert counts["error: http 500"].startswith("1 ×")


def test_a_sweep_is_a_row_a_load_and_a_verdict() -> None:
    report = sweep_report()
    grid = sweep_grid(report, 99.0)
    assert [row[0] for row in grid.rows] == ["1", "2"]
    assert grid.rows[0][4] == "300 / 496"
    verdict = sweep_verdict(report)
    assert verdict is not None
    assert "highest rate that holds 90% of the requests within ttft:300 ms: 1; 2 does not" in verdict
    assert {measure.name.partition(":")[0] for measure in report.measures} == {"rate 1", "rate 2"}


class _References(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.sources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]


def test_a_page_needs_nothing_else_and_runs_nothing() -> None:
    pytest.importorskip("matplotlib")
    report = single_report()
    drawn = pictures(report)
    assert set(drawn) == {"latency.png", "server.png"}
    text = page(report, [Grid("Run", ["", ""], count_rows(report.points[0].runs))], drawn)
    seen = _References()
    seen.feed(text)
    assert len(seen.sources) == 2
    assert all(source.startswith("data:image/png;base64,") for source in seen.sources)
    assert "script" not in seen.tags
    assert "&lt;script&gt;" in text
    assert not re.search(r"url\(|@import", text)


def test_pictures_of_a_sweep() -> None:
    pytest.importorskip("matplotlib")
    drawn = pictures(sweep_report())
    assert set(drawn) == {"load.png", "server.png"}
    assert all(data.startswith(b"\x89PNG") for data in drawn.values())


def test_a_start_is_drawn_in_parts_and_other_single_numbers_are_not() -> None:
    pytest.importorskip("matplotlib")
    measures_ = [Measure("start", "s", "lower", [[1.0], [2.0]])]
    assert set(pictures(new_report("startup", "x", {}, measures_))) == {"parts.png"}
    assert pictures(new_report("latency", "x", {}, measures_)) == {}


def test_kernels_are_drawn_by_their_share_of_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[dict[str, dict[str, float]]] = []

    def draw(title: str, shares: dict[str, dict[str, float]]) -> bytes:
        drawn.append(shares)
        return b"picture"

    monkeypatch.setattr("quire.bench.pictures.shares_picture", draw)
    times = {"linear: 1 × 8": [2.0, 4.0, 3.0], "linear: 2 × 8": [5.0], "attention: decode": [10.0]}
    measures_ = [Measure(name, "s", "lower", [[each] for each in samples]) for name, samples in times.items()]
    floors = {"linear: 1 × 8": 1.5, "attention: decode": 9.0}
    report = new_report("kernels", "x", {}, measures_, floors=floors)
    assert pictures(report) == {"kernels.png": b"picture"}
    assert drawn == [{"linear": {"1 × 8": 0.5}, "attention": {"decode": 0.9}}]
