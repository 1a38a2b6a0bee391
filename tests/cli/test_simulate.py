"""`quire simulate`: tables, JSON, a picture, and one line with exit code 2 for everything that is wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from quire.cli.main import main

SMALL = ["simulate", "qwen3-0.6b", "--device", "a10g", "--max-model-len", "2048", "--processes", "1"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main([*SMALL, *arguments]) == 0
    return capsys.readouterr().out


def test_one_policy(capsys: pytest.CaptureFixture[str]) -> None:
    page = run(capsys, "--num-requests", "30")
    assert "qwen3-0.6b on a10g" in page
    assert "30 random requests, all at once" in page
    for word in ("output tokens a second", "first token", "between tokens", "waste, in blocks", "whole context"):
        assert word in page


def test_policies_and_tenants_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    page = run(capsys, "--num-requests", "40", "--tenants", "a=1,b=3", "--compare", "fair,sjf", "--max-num-seqs", "4")
    assert "Tenants under fcfs" in page
    assert "Tenants under fair" in page
    assert "Jain's index over tenants" in page
    assert "longest wait" in page


def test_sharing_is_printed_against_none(capsys: pytest.CaptureFixture[str]) -> None:
    page = run(capsys, "--num-requests", "10", "--n", "4")
    assert "the same without sharing" in page
    assert "saved by sharing" in page
    assert "beams dropped on the way" in run(capsys, "--num-requests", "5", "--beam-width", "3")


def test_refused_requests_are_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    trace.write_text('{"arrival_time": 0, "input_length": 5000, "output_length": 5}\n', encoding="utf-8")
    assert "refused, too large" in run(capsys, "--trace", str(trace))


def test_json_and_plot(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    data, picture = tmp_path / "out.json", tmp_path / "out.png"
    run(capsys, "--num-requests", "20", "--json", str(data), "--plot", str(picture), "--compare", "sjf")
    reports = json.loads(data.read_text(encoding="utf-8"))["reports"]
    assert [report["setting"]["policy"] for report in reports] == ["fcfs", "sjf"]
    assert reports[0]["requests"]["ended"] == 20
    assert reports[0]["kv"]["contiguous_waste"].keys() == {"whole context", "power of two", "exact length"}
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_checkpoint_can_be_simulated(capsys: pytest.CaptureFixture[str], llama: str) -> None:
    assert main(["simulate", llama, "--num-requests", "5", "--processes", "1"]) == 0
    assert "Meta-Llama-3-8B on h200" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trace", "nowhere.csv"], "the trace nowhere.csv cannot be read: No such file"),
        (["--num-requests", "-5"], "--num-requests is -5"),
        (["--num-requests", "many"], "--num-requests"),
        (["--request-rate", "0"], "--request-rate is 0.0"),
        (["--compare", "fifo"], "--compare is 'fifo', but it must be one of fcfs"),
        (["--compare", "faair"], "Did you mean 'fair'?"),
        (["--scheduling-policy", "fifo"], "scheduling-policy"),
        (["--device-memory", "big"], "--device-memory is 'big'"),
        (["--replicas", "0"], "--replicas is 0"),
        (["--routing", "magic"], "routing"),
        (["--n", "500"], "n is 500; it must be a whole number from 1 to 128"),
        (["--json", "no/such/folder/x.json"], "there is no folder"),
        (["--max-num-seqs", "0"], "--max-num-seqs is 0"),
        (["--input-tokens", "5000"], "makes prompts of 5000 tokens, but the context holds 2048"),
        (["--trace-block", "5"], "--trace-block has no effect without --trace"),
        (["--pipeline-parallel-size", "200"], "--pipeline-parallel-size is 200, but the model has only"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main([*SMALL, *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.startswith("quire: error: ")
    assert captured.err.count("\n") == 1


def test_a_bad_line_of_a_trace_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("arrival_time,input_length,output_length\n0,5,5\n1,-5,5\n", encoding="utf-8")
    assert main([*SMALL, "--trace", str(trace)]) == 2
    expected = "line 3: input_length is '-5', but it must be a whole number from 1 to 16777216.\n"
    assert capsys.readouterr().err == f"quire: error: {trace}, {expected}"


def test_help_is_light() -> None:
    code = (
        "import sys\nfrom quire.cli.main import main\n"
        "try:\n    main(['simulate', '--help'])\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('numpy', 'torch', 'matplotlib', 'msgspec') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "--compare" in done.stdout


def test_a_scenario_is_told_written_and_drawn(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    files = {"--json": tmp_path / "day.json", "--plot": tmp_path / "day.svg"}
    options = [word for name, path in files.items() for word in (name, str(path))]
    day = ["simulate", "--scenario", "fastchat-day", "--num-requests", "200", *options]
    assert main(day) == 0
    page = capsys.readouterr().out
    for word in ("fastchat-day", "llama-8b on 2 × a10g", "first token", "Tokens of prompts", "prefix routing"):
        assert word in page
    [report] = json.loads(files["--json"].read_text(encoding="utf-8"))["reports"]
    assert report["ended"] == report["arrived"] > 100
    drawn = files["--plot"].read_text(encoding="utf-8")
    assert drawn.count("<svg ") == 7, "six charts in one"
    assert "time of day" in drawn


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--compare", "sjf"], "--compare has no effect with --scenario"),
        (["--plot", "day.png"], "ends in .svg"),
        (["--prefill-replicas", "2"], "--prefill-replicas is 2 of 2"),
    ],
)
def test_what_a_scenario_does_not_take(capsys: pytest.CaptureFixture[str], options: list[str], said: str) -> None:
    assert main(["simulate", "--scenario", "fastchat-day", "--num-requests", "10", *options]) == 2
    assert said in capsys.readouterr().err
