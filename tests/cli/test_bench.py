"""`quire bench`: offline runs on a tiny model, starts, comparisons; help that loads nothing heavy."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from quire.bench.report import read_report
from quire.cli.main import main


@pytest.mark.parametrize("command", ["serve", "throughput", "latency", "startup", "kernels", "compare"])
def test_every_command_has_help(capsys: Any, command: str) -> None:
    assert main(["bench", command, "--help"]) == 0
    page = capsys.readouterr().out
    assert f"quire bench {command}" in page


def test_help_loads_nothing_heavy() -> None:
    code = "import sys; from quire.cli.main import main; main(['bench', 'serve', '--help']); " \
           "print('heavy:', *(m for m in ('torch', 'numpy', 'matplotlib') if m in sys.modules))"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].strip() == "heavy:"


def test_throughput(run_tiny: list[str], tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "out.json"
    options = ["--num-requests", "4", "--input-len", "8", "--output-len", "3", "--repeats", "2", "--json", str(path)]
    assert main(["bench", "throughput", *run_tiny, *options]) == 0
    assert "output tokens a second" in capsys.readouterr().out
    report = read_report(path)
    assert report.kind == "throughput"
    rates = {measure.name: measure.runs for measure in report.measures}
    assert [len(run) for run in rates["ttft"]] == [4, 4]
    for (out,), (given,), (asked,) in zip(
        rates["output tokens a second"], rates["input tokens a second"], rates["requests a second"], strict=True
    ):
        assert out == pytest.approx(3 * asked, rel=1e-5)
        assert given == pytest.approx(8 * asked, rel=1e-5)


def test_a_bad_line_is_found_before_anything_is_measured(run_tiny: list[str], tmp_path: Path, capsys: Any) -> None:
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"prompt": [5, 6], "output_len": 2}\nnot JSON\n', encoding="utf-8")
    options = ["--dataset", "jsonl", "--dataset-path", str(lines)]
    assert main(["bench", "throughput", *run_tiny, *options]) == 2
    assert "line 2" in capsys.readouterr().err
    assert main(["bench", "throughput", *run_tiny, "--dataset", "jsonl", "--dataset-path", str(tmp_path / "x")]) == 2
    assert "there is no such file" in capsys.readouterr().err


def test_latency(run_tiny: list[str], tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "out.json"
    options = ["--batch-size", "2", "--input-len", "8", "--output-len", "4", "--iterations", "3", "--json", str(path)]
    assert main(["bench", "latency", *run_tiny, *options]) == 0
    assert "2 × (8 in + 4 out)" in capsys.readouterr().out
    found = {measure.name: measure.samples for measure in read_report(path).measures}
    assert len(found["whole batch"]) == 3
    for whole, each, first in zip(found["whole batch"], found["per token"], found["to the first token"], strict=True):
        assert each == pytest.approx(whole / 4, rel=1e-5)
        assert 0 < first < whole


@pytest.mark.parametrize("of", ["engine", "server"])
def test_startup(run_tiny: list[str], tmp_path: Path, of: str) -> None:
    path = tmp_path / "out.json"
    assert main(["bench", "startup", *run_tiny, "--of", of, "--repeats", "1", "--json", str(path)]) == 0
    found = {measure.name: measure.samples[0] for measure in read_report(path).measures}
    assert 0 < found["start to ready"] < found["start to first token"]
    if of == "server":
        # told by /stats; the engine loads beside the server, and both before it is ready
        told = {name: seconds for name, seconds in found.items() if name.startswith(("server: ", "engine: "))}
        assert {"server: reading the tokenizer", "engine: importing modules", "engine: finding the device"} <= set(told)
        for side in ("server: ", "engine: "):
            assert 0 < sum(seconds for name, seconds in told.items() if name.startswith(side)) < found["start to ready"]
    if of == "engine":
        parts = [found[name] for name in found if not name.startswith(("start to", "of loading"))]
        assert sum(parts) == pytest.approx(found["start to first token"], rel=1e-5)
        loading = {name.removeprefix("of loading: "): found[name] for name in found if name.startswith("of loading")}
        assert {"building the model", "memory for KV and steps", "reading the tokenizer"} <= set(loading)
        one_after_the_other = [seconds for name, seconds in loading.items() if not name.endswith("meanwhile")]
        assert sum(one_after_the_other) <= found["loading the model"]


def test_a_start_that_fails_says_why(tmp_path: Path, capsys: Any) -> None:
    assert main(["bench", "startup", "--model", str(tmp_path), "--repeats", "1"]) == 2
    assert "did not start" in capsys.readouterr().err


def report_file(path: Path, kind: str, samples: list[float], name: str = "ttft") -> str:
    measures = [{"name": name, "unit": "s", "better": "lower", "runs": [[each] for each in samples]}]
    told = {"kind": kind, "title": "x", "setting": {}, "measures": measures, "date": "", "machine": {}}
    path.write_text(json.dumps(told), encoding="utf-8")
    return str(path)


def test_compare_finds_what_got_slower(tmp_path: Path, capsys: Any) -> None:
    old = report_file(tmp_path / "old.json", "serve", [1.0, 1.01, 0.99, 1.0])
    new = report_file(tmp_path / "new.json", "serve", [1.5, 1.51, 1.49, 1.5])
    assert main(["bench", "compare", old, new]) == 0
    assert "slower" in capsys.readouterr().out
    assert main(["bench", "compare", old, new, "--fail"]) == 1
    assert main(["bench", "compare", new, old, "--fail"]) == 0
    assert main(["bench", "compare", old, new, "--fail", "--margin", "0.6"]) == 0
    other = report_file(tmp_path / "other.json", "startup", [1.0])
    assert main(["bench", "compare", old, other]) == 2


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_a_verdict_is_whole_in_a_narrow_terminal(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    name = "of loading: memory for KV and steps, meanwhile, of the server"
    old = report_file(tmp_path / "old.json", "serve", [12.345, 12.346, 12.344], name)
    new = report_file(tmp_path / "new.json", "serve", [123.45, 123.46, 123.44], name)
    assert main(["bench", "compare", old, new]) == 0
    [row] = [line for line in capsys.readouterr().out.splitlines() if "12,345" in line]
    assert len(row.rstrip()) <= columns
    assert "slower" in row.split()


def test_kernels_refuse_what_they_cannot_do(capsys: Any) -> None:
    assert main(["bench", "kernels", "lineer"]) == 2
    assert "linear" in capsys.readouterr().err
    assert main(["bench", "kernels", "linear", "--threads", "0"]) == 2
    assert "--threads is 0" in capsys.readouterr().err
    assert main(["bench", "kernels", "--table", "x.py"]) == 2
    assert "--tune" in capsys.readouterr().err
