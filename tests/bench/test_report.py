"""Reports are read as they were written; pages need nothing else."""

import re
from collections.abc import Sequence
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
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
from quire.bench.svg_chart import BarChart, LineChart
from quire.bench.sweep import measures_by_load
from quire.bench.verdict import Verdict, verdict
from quire.core.errors import ConfigError

GAUGES = [GaugePoint(time / 10, float(time % 4), 0.0, time / 20) for time in range(10)]


DRAFTING = [GaugePoint(time / 10, 1.0, 0.0, 0.5, 10 * time, 40 * time, 30 * time) for time in range(8)]


def point(load: float | None, scale: float = 1.0, gauges: Sequence[GaugePoint] = GAUGES) -> LoadPoint:
    records = [
        RequestRecord(
            n, 0.0, 0.0, [scale * (n + 1) / 10, scale * (n + 3) / 10], scale * (n + 3) / 10, 8, 4, None, "usage"
        )
        for n in range(5)
    ]
    failed = RequestRecord(5, 0.0, 0.0, ended=0.1, error="http 500", error_text="<script>alert(1)</script>")
    run = [*records, failed]
    summary = summarize(run, parse_objectives(["ttft:300"]), gauges)
    return LoadPoint(load, measures([run], [summary]), [summary])


def single_report(gauges: Sequence[GaugePoint] = GAUGES) -> Report:
    one = point(None, gauges=gauges)
    return new_report("serve", "a <title>", {"rate": 1.0, "goodput": "ttft:300"}, one.measures, points=[one])


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


def test_drafts_are_told_where_the_server_counts_them(tmp_path: Path) -> None:
    report = single_report(DRAFTING)
    single = single_grid("Totals", report.measures)
    assert single is not None
    assert ["drafts that were right", "75 %", ""] in single.rows
    assert ["mean accepted length", "3 tok", ""] in single.rows
    assert ["drafted tokens, accepted", "280, 210"] in count_rows(report.points[0].runs)
    drawn = pictures(report)
    chart = drawn["server-drafts"]
    assert isinstance(chart, LineChart)
    [line] = chart.lines
    assert line.points == [(pytest.approx(time / 10), 75.0) for time in range(1, 8)]
    text = re.sub(r"<[^>]+>", " ", page(report, [], drawn))
    assert re.search(r"% of drafts right\s+75\s", text)
    assert re.search(r"Mean accepted length\s+3\s", text)
    path = tmp_path / "out.json"
    write_report(report, path)
    kept = msgspec.json.decode(path.read_bytes())
    assert kept["points"][0]["runs"][0]["drafts"] == {"drafts": 70, "tokens": 280, "accepted": 210}
    (run,) = read_report(path).points[0].runs
    assert (run.drafts, run.gauges) == (report.points[0].runs[0].drafts, DRAFTING)


def test_reports_from_before_drafts_were_counted_are_read(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    write_report(single_report(), path)
    older = msgspec.json.decode(path.read_bytes())
    for run in older["points"][0]["runs"]:
        del run["drafts"]
        for look in run["gauges"]:
            for name in ("drafts", "drafted", "accepted"):
                del look[name]
    path.write_bytes(msgspec.json.encode(older))
    (run,) = read_report(path).points[0].runs
    assert run.drafts is None
    assert not [row for row in count_rows([run]) if "draft" in row[0]]


def test_use_of_kv_is_that_under_load() -> None:
    (kv,) = [row[1] for row in count_rows(single_report().points[0].runs) if row[0].startswith("KV cache")]
    assert kv == "20.0% / 35.0%", "the first look and those after the last answer do not count"


def test_a_sweep_is_a_row_a_load_and_a_verdict() -> None:
    report = sweep_report()
    grid = sweep_grid(report, 99.0)
    assert [row[0] for row in grid.rows] == ["1", "2"]
    assert grid.rows[0][4] == "300 / 496"
    verdict = sweep_verdict(report)
    assert verdict is not None
    assert "highest rate that holds 90% of the requests within ttft 300 ms is 1; 2 does not" in verdict
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
    report = single_report()
    drawn = pictures(report)
    text = page(report, [Grid("Run", ["", ""], count_rows(report.points[0].runs))], drawn)
    seen = _References()
    seen.feed(text)
    assert seen.sources == []
    assert seen.tags.count("svg") == len(drawn)
    assert not {"script", "img", "link", "iframe"} & set(seen.tags)
    assert "&lt;script&gt;" in text
    assert not re.search(r"url\(|@import", text)


def test_a_page_begins_with_the_verdict() -> None:
    for report in (single_report(), sweep_report()):
        text = page(report, [], {}).partition("<main>")[2]
        assert re.sub(r"<[^>]+>", "", text).startswith(escape(verdict(report).text))


def test_charts_of_one_load_and_of_a_sweep() -> None:
    single = {f"latency-{name}" for name in ("ttft", "tpot", "itl", "e2e")}
    server = {"server-requests", "server-kv"}
    assert set(pictures(single_report())) == single | server
    by_load = {f"load-{name}" for name in ("ttft", "tpot", "itl", "e2e", "throughput", "kept")}
    assert set(pictures(sweep_report())) == by_load | server


def test_limits_are_drawn_where_there_are_some() -> None:
    single, sweep = pictures(single_report()), pictures(sweep_report())
    assert "limit 300 ms: 60.0% within" in single["latency-ttft"].svg()
    assert "limit 300 ms<" in sweep["load-ttft"].svg()
    assert "wanted: 90%" in sweep["load-kept"].svg()
    for chart in (single["latency-e2e"], sweep["load-e2e"], single["server-kv"]):
        assert 'class="limit"' not in chart.svg()


def test_a_start_is_drawn_in_parts_and_other_single_numbers_are_not() -> None:
    measures_ = [Measure("start", "s", "lower", [[1.0], [2.0]])]
    assert set(pictures(new_report("startup", "x", {}, measures_))) == {"parts"}
    assert pictures(new_report("latency", "x", {}, measures_)) == {}


def kernels_report() -> Report:
    times = {"linear: 1 × 8": [2.0, 4.0, 3.0], "linear: 2 × 8": [5.0], "attention: decode": [10.0]}
    measures_ = [Measure(name, "s", "lower", [[each] for each in samples]) for name, samples in times.items()]
    floors = {"linear: 1 × 8": 1.5, "attention: decode": 9.0}
    return new_report("kernels", "x", {}, measures_, floors=floors)


def test_kernels_are_drawn_by_their_share_of_the_limit() -> None:
    drawn = pictures(kernels_report())
    assert set(drawn) == {"kernels-linear", "kernels-attention"}
    chart = drawn["kernels-linear"]
    assert isinstance(chart, BarChart)
    assert [(bar.name, bar.value) for bar in chart.bars] == [("1 × 8", 0.5)]


def test_many_kernels_are_spread_over_cards() -> None:
    names = [f"linear: {number}" for number in range(40)]
    measures_ = [Measure(name, "s", "lower", [[2.0]]) for name in names]
    drawn = pictures(new_report("kernels", "x", {}, measures_, floors=dict.fromkeys(names, 1.0)))
    assert list(drawn) == ["kernels-linear 1 to 16", "kernels-linear 17 to 32", "kernels-linear 33 to 40"]


GOOD = {"requests": 10, "completed": 10, "seconds": 2.0, "share_met": 0.95}


def verdict_on(**changes: Any) -> Verdict:
    run = msgspec.structs.replace(point(None).runs[0], **(GOOD | changes))
    rates = [Measure("output tokens a second", "tok/s", "higher", [[812.0]]), Measure("ttft", "s", "lower", [[0.12]])]
    return verdict(new_report("serve", "x", {}, rates, points=[LoadPoint(None, rates, [run])]))


def test_verdicts() -> None:
    assert verdict_on() == Verdict("95.0% of 10 requests kept to every limit: 4.75 good requests a second.", "good")
    assert verdict_on(share_met=0.8).tone == "bad"
    answered = "All 10 requests were answered: 812 output tokens a second, the first after 120 ms."
    assert verdict_on(share_met=None) == Verdict(answered, "plain")
    assert verdict_on(completed=7, share_met=None) == Verdict("3 of 10 requests failed.", "bad")
    assert verdict_on(completed=7).text.startswith("3 of 10 requests failed. 95.0% of 10 requests kept")
    sweep = sweep_report()
    assert verdict(sweep).tone == "bad", "a request failed"
    start = new_report("startup", "x", {}, [Measure("start", "s", "lower", [[0.5], [0.7], [0.6]])])
    assert verdict(start).text == "Start: 600 ms, the median of 3 runs."
    assert verdict(kernels_report()).text.startswith("2 kernels reach 50% to 90% of what the machine can do")
    assert verdict(new_report("latency", "x", {}, [])).text == "Nothing was measured."


@pytest.mark.parametrize(("good", "tone"), [(4.0, "good"), (None, "bad")])
def test_the_verdict_of_a_sweep_is_what_was_found(good: float | None, tone: str) -> None:
    sweep = Sweep("rate", "ttft:300", 0.9, good, 8.0)
    found = verdict(new_report("serve", "x", {}, [], sweep=sweep))
    assert found.tone == tone
    assert "holds 90% of the requests within ttft 300 ms" in found.text
