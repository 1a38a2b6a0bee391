"""`quire bench serve` against the real server with the default model: counts are exact, times are there."""

import json
from pathlib import Path
from typing import Any

import pytest

from quire.bench.report import Report, read_report
from quire.cli.main import main
from tests.server.live import LiveServer

SMALL = ("--input-len", "24", "--output-len", "6")


def bench(server: LiveServer, *options: str, code: int = 0) -> None:
    assert server.key is not None
    command = ["bench", "serve", "--url", server.url, "--api-key", server.key]
    assert main([*command, *options]) == code


def samples(report: Report, name: str) -> list[float]:
    (measure,) = [measure for measure in report.measures if measure.name == name]
    return measure.samples


def test_completions_are_counted_exactly(measured_server: LiveServer, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "out.json"
    options = (
        "--num-requests",
        "10",
        "--concurrency",
        "4",
        "--metrics-every",
        "0.01",
        "--goodput",
        "ttft:60000",
        "tpot:9000",
    )
    bench(measured_server, *SMALL, *options, "--json", str(path))
    report = read_report(path)
    (run,) = report.points[0].runs
    assert (run.requests, run.completed, run.errors) == (10, 10, {})
    assert (run.input_tokens, run.output_tokens, run.counted_by) == (240, 60, ["usage"])
    assert 1 <= run.peak_concurrency <= 4
    assert run.share_met == 1.0
    assert all(len(samples(report, name)) == 10 for name in ("ttft", "tpot", "e2e"))
    assert all(first < whole for first, whole in zip(samples(report, "ttft"), samples(report, "e2e"), strict=True))
    assert any(look.kv for look in run.gauges)
    assert "api_key" not in report.setting
    page = capsys.readouterr().out
    assert "smollm2 at" in page
    assert measured_server.key not in page + path.read_text(encoding="utf-8")


def test_the_server_counted_the_same(measured_server: LiveServer) -> None:
    names = ("quire_prompt_tokens_total", "quire_generation_tokens_total")
    before = [measured_server.metric(name) for name in names]
    bench(measured_server, *SMALL, "--num-requests", "5", "--warmup", "0")
    assert [measured_server.metric(name) - old for name, old in zip(names, before, strict=True)] == [120, 30]


def test_chats_at_a_rate(measured_server: LiveServer, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    options = (
        "--endpoint",
        "chat",
        "--num-requests",
        "6",
        "--request-rate",
        "50",
        "--burstiness",
        "0.5",
        "--repeats",
        "2",
    )
    bench(measured_server, *SMALL, *options, "--json", str(path))
    report = read_report(path)
    assert [run.completed for run in report.points[0].runs] == [6, 6]
    assert [run.output_tokens for run in report.points[0].runs] == [36, 36]
    # the template adds to the 24 words of each prompt
    assert all(run.input_tokens is not None and run.input_tokens > 6 * 24 for run in report.points[0].runs)


def test_shared_prefixes_are_found_in_the_cache(measured_server: LiveServer, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    options = ("--prefix-len", "64", "--num-requests", "5", "--concurrency", "1", "--seed", "77")
    bench(measured_server, *SMALL, *options, "--json", str(path))
    (run,) = read_report(path).points[0].runs
    assert run.cached_tokens is not None
    assert run.cached_tokens >= 4 * 64


def test_prompts_are_fresh_unless_the_same_are_asked_for(measured_server: LiveServer, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    found = []
    for option in ("--fresh-prompts", "--no-fresh-prompts", "--fresh-prompts", "--no-fresh-prompts"):
        bench(measured_server, *SMALL, option, "--num-requests", "3", "--seed", "5", "--json", str(path))
        found.append(read_report(path).points[0].runs[0].cached_tokens)
    assert found[:3] == [0, 0, 0]
    assert found[3] == 3 * 23  # all but the last token of each, which is always computed


def test_a_trace_is_replayed(measured_server: LiveServer, tmp_path: Path) -> None:
    trace, path = tmp_path / "trace.jsonl", tmp_path / "out.json"
    lines = [{"timestamp": 10 * n, "input_length": 5 + n, "output_length": 2, "hash_ids": [1]} for n in range(4)]
    trace.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    bench(measured_server, "--dataset", "trace", "--dataset-path", str(trace), "--json", str(path))
    (run,) = read_report(path).points[0].runs
    assert (run.completed, run.input_tokens, run.output_tokens) == (4, 5 + 6 + 7 + 8, 8)


def test_a_sweep_finds_what_holds(measured_server: LiveServer, tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("matplotlib")
    path, html, plots = tmp_path / "out.json", tmp_path / "out.html", tmp_path / "plots"
    options = ("--num-requests", "4", "--sweep", "concurrency=1,4", "--goodput", "e2e:600000", "--refine", "2")
    bench(measured_server, *SMALL, *options, "--json", str(path), "--html", str(html), "--plot", str(plots))
    report = read_report(path)
    assert report.sweep is not None
    assert (report.sweep.highest_good, report.sweep.lowest_bad) == (4.0, None)
    assert [point.load for point in report.points] == [1.0, 4.0]
    # no load meets prompts that another has shown to the server
    assert [run.cached_tokens for point in report.points for run in point.runs] == [0, 0]
    assert "The highest concurrency that holds" in capsys.readouterr().out
    assert (plots / "load.png").read_bytes().startswith(b"\x89PNG")
    assert html.read_text(encoding="utf-8").count("data:image/png") == 2


def test_a_sweep_that_nothing_holds_says_so(measured_server: LiveServer, capsys: Any) -> None:
    bench(measured_server, *SMALL, "--num-requests", "2", "--sweep", "rate=20", "--goodput", "e2e:0.001")
    assert "No rate that was tried holds" in capsys.readouterr().out


def test_errors_are_counted_and_end_with_one(measured_server: LiveServer, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "out.json"
    bench(measured_server, "--input-len", "100000", "--num-requests", "2", "--json", str(path), code=1)
    (run,) = read_report(path).points[0].runs
    assert (run.completed, run.errors) == (0, {"http 400": 2})
    assert "error: http 400" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--sweep", "rate=1", "--request-rate", "2"), "--request-rate is given"),
        (("--sweep", "load=1"), "--sweep is 'load=1'"),
        (("--refine", "2"), "--refine searches"),
        (("--goodput", "ttfb:2"), "--goodput"),
        (("--replay-speed", "2"), "needs a dataset whose requests all have a moment"),
        (("--endpoint", "chat", "--prompt-form", "ids"), "a chat takes text"),
    ],
)
def test_wrong_questions_are_one_line(
    measured_server: LiveServer, capsys: Any, options: tuple[str, ...], named: str
) -> None:
    bench(measured_server, *options, code=2)
    (line,) = capsys.readouterr().err.splitlines()
    assert named in line


def test_a_missing_key_and_a_missing_server_are_named(measured_server: LiveServer, capsys: Any) -> None:
    assert main(["bench", "serve", "--url", measured_server.url]) == 2
    assert "--api-key" in capsys.readouterr().err
    assert main(["bench", "serve", "--url", "http://127.0.0.1:9"]) == 2
    assert "no server answers at http://127.0.0.1:9" in capsys.readouterr().err
