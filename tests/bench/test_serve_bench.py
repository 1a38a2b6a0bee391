"""`quire bench serve` against the real server with the default model: counts are exact, times are there."""

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from quire.bench.load_run import OnRecord
from quire.bench.record import RequestRecord
from quire.bench.report import Report, read_report
from quire.cli.bench.watching import Watching
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
        "0.05",
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
    assert max(found[:3]) < 23, "two of few tokens may be the same by chance"
    assert found[3] == 3 * 23  # all but the last token of each, which is always computed


def test_a_trace_is_replayed(measured_server: LiveServer, tmp_path: Path) -> None:
    trace, path = tmp_path / "trace.jsonl", tmp_path / "out.json"
    lines = [{"timestamp": 10 * n, "input_length": 5 + n, "output_length": 2, "hash_ids": [1]} for n in range(4)]
    trace.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    bench(measured_server, "--dataset", "trace", "--dataset-path", str(trace), "--json", str(path))
    (run,) = read_report(path).points[0].runs
    assert (run.completed, run.input_tokens, run.output_tokens) == (4, 5 + 6 + 7 + 8, 8)


def test_a_sweep_finds_what_holds(measured_server: LiveServer, tmp_path: Path, capsys: Any) -> None:
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
    names = {path.stem for path in plots.glob("*.svg")}
    assert {"load-ttft", "load-e2e", "load-throughput", "load-kept"} <= names
    assert html.read_text(encoding="utf-8").count("<svg ") == len(names)


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


class OddServer(BaseHTTPRequestHandler):
    """Speaks a part of the protocol: no usage, lines that end as HTTP's do, comments between events; after so many
    answers it breaks off."""

    def log_message(self, *arguments: Any) -> None:
        pass

    def do_GET(self) -> None:
        body = b'{"data": [{"id": "odd"}]}' if self.path.endswith("/models") else b"oops"
        self.send_response(200 if self.path.endswith("/models") else 501)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        left: list[int] = self.server.left  # type: ignore[attr-defined]
        if not left:
            return  # the connection ends without an answer
        left.pop()
        with suppress(OSError):  # whoever asked may be gone
            self.send_response(200)
            self.end_headers()
            for _ in range(3):
                self.wfile.write(b': wait\r\n\r\ndata: {"choices":[{"text":" a"}]}\r\n\r\n')
            self.wfile.write(b'data: {"choices":[{"text":"","finish_reason":"length"}]}\r\n\r\ndata: [DONE]\r\n\r\n')


@contextmanager
def odd_server(answers: int) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), OddServer) as server:
        server.left = list(range(answers))  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_server_that_counts_nothing_and_says_nothing_of_itself(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "out.json"
    with odd_server(100) as url:
        assert main(["bench", "serve", "--url", url, *SMALL, "--num-requests", "3", "--json", str(path)]) == 0
    report = read_report(path)
    (run,) = report.points[0].runs
    assert (run.completed, run.output_tokens, run.counted_by, run.gauges) == (3, None, [], [])
    names = {measure.name for measure in report.measures}
    assert {"ttft", "itl", "e2e"} <= names
    assert not {"tpot", "output tokens a second"} & names
    assert "tokens were not counted" in " ".join(capsys.readouterr().out.split())


def test_a_server_that_dies_in_the_middle_leaves_what_was_measured(tmp_path: Path, capsys: Any) -> None:
    path, page = tmp_path / "out.json", tmp_path / "out.html"
    options = [*SMALL, "--num-requests", "6", "--concurrency", "1", "--warmup", "0"]
    with odd_server(4) as url:
        code = main(["bench", "serve", "--url", url, *options, "--json", str(path), "--html", str(page)])
    assert code == 1
    (run,) = read_report(path).points[0].runs
    assert (run.requests, run.completed, run.errors) == (6, 4, {"broken": 2})
    assert page.exists()
    assert "2 of 6 requests failed" in capsys.readouterr().out


def test_a_sweep_in_which_every_load_fails_is_told_and_drawn(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "out.html"
    options = ["--num-requests", "2", "--sweep", "concurrency=1,2", "--goodput", "ttft:100", "--html", str(path)]
    with odd_server(0) as url:
        assert main(["bench", "serve", "--url", url, *options]) == 1
    assert "No concurrency that was tried holds" in capsys.readouterr().out
    assert path.exists()


@pytest.mark.parametrize("load", [("--repeats", "3"), ("--sweep", "concurrency=1,2", "--goodput", "e2e:60000")])
def test_an_interrupted_run_keeps_what_had_ended(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, load: tuple[str, ...]
) -> None:
    """Ctrl-C in the second run of several."""
    path = tmp_path / "out.json"
    ended: list[RequestRecord] = []
    usual = Watching.records

    def records(self: Watching, what: str, total: int) -> OnRecord:
        on_record = usual(self, what, total)

        def noted(record: RequestRecord) -> None:
            on_record(record)
            ended.append(record)
            if len(ended) == 6:
                signal.raise_signal(signal.SIGINT)

        return noted

    monkeypatch.setattr(Watching, "records", records)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with odd_server(100) as url:
            options = [*SMALL, *load, "--num-requests", "4", "--warmup", "0", "--json", str(path)]
            if load[0] == "--repeats":
                options += ["--concurrency", "1"]
            assert main(["bench", "serve", "--url", url, *options]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    report = read_report(path)
    runs = [run for point in report.points for run in point.runs]
    assert len(runs) == 2
    assert runs[0].completed == 4
    assert 2 <= runs[1].completed < 4
    assert "Interrupted: this is what had finished" in capsys.readouterr().out
    if report.sweep is not None:
        assert (report.sweep.highest_good, report.sweep.lowest_bad) == (1, None)


def test_a_url_that_is_no_such_server_is_told(tmp_path: Path, capsys: Any) -> None:
    class Proxy(OddServer):
        def do_GET(self) -> None:
            self.send_error(500, "out of order")

    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        assert main(["bench", "serve", "--url", f"http://127.0.0.1:{server.server_port}"]) == 2
        server.shutdown()
        thread.join()
    told = capsys.readouterr().err
    assert "/v1/models answered 500" in told
    assert "It said:" in told
