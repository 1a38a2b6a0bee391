"""The command as a whole: help, exit codes, and one line for every expected error."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from quire.cli import main as cli
from quire.cli.main import main
from quire.core.errors import CheckpointError, ConfigError


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A real process, as a user starts it."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("QUIRE_")}
    command = [sys.executable, "-m", "quire.cli.main", *arguments]
    return subprocess.run(command, env=clean | environment, capture_output=True, text=True, timeout=60, check=False)


def assert_one_line(done: subprocess.CompletedProcess[str], expected: str) -> None:
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("quire: error: ")
    assert expected in done.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["plan", ".", "--block-siz", "8"], "--block-siz. Did you mean --block-size?"),
        (["plan", ".", "--block-size", "16.5"], "--block-size is '16.5', but it must be a whole number"),
        (["plan", ".", "--max-num-seqs", "8", "--max-num-batched-tokens", "4"], "raise the former or lower the latter"),
        (["plan", "./none"], "there is no file or folder './none'"),
        (["plan", ".", "--config", "none.yaml"], "cannot read --config none.yaml: No such file or directory"),
        (["plam"], 'unknown command "plam". Did you mean "plan"?'),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: list[str], expected: str) -> None:
    assert_one_line(run(*arguments), expected)


def test_unknown_variable_is_one_line_and_exit_code_2() -> None:
    assert_one_line(run("plan", ".", QUIRE_MAX_NUM_SEQ="8"), "Did you mean 'QUIRE_MAX_NUM_SEQS'?")


def test_help_of_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "plan" in capsys.readouterr().out
    assert main([]) == 0
    assert "serve" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "reads"),
    [("serve", True), ("chat", True), ("run-batch", True), ("complete", False), ("plan", False), ("simulate", False)],
)
def test_only_commands_that_read_conversations_take_parsers(
    command: str, reads: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--help-all"]) == 0
    shown = capsys.readouterr().out
    assert [option in shown for option in ("--tool-parser", "--reasoning-parser")] == [reads, reads]


def test_root_help_loads_no_command() -> None:
    code = (
        "import sys; from quire.cli.main import main; main(['--help']); "
        "assert not {'quire.cli.plan', 'quire.cli.planning', 'torch', 'numpy', 'yaml'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == "0.1.0"


@pytest.mark.parametrize("error", [ConfigError("no\n  good"), CheckpointError("no good"), OSError("no good")])
def test_expected_errors_become_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(cli, "build_app", fail)
    assert main(["plan"]) == 2
    assert capsys.readouterr().err == "quire: error: no good\n"


def test_interrupt_is_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "build_app", interrupt)
    assert main(["plan"]) == 130
    assert capsys.readouterr().err == ""


def test_reader_that_goes_away_is_no_traceback(tmp_path: Path, llama: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "quire.cli.main", "plan", llama, "--json"]
    with os.fdopen(writing, "w") as closed:
        done = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 141
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["plan", "a", "b"], "unexpected argument 'b'"),
        (["plan", "a", "--block-size"], "--block-size requires an argument"),
        (["plan", "a", "--block-size", "8", "--block-size", "8"], "--block-size specified multiple times"),
        (["plan", "a", "--dtype", "bf16"], 'Did you mean "bfloat16"?'),
        (["plan", "a", "--enable-prefix-caching=perhaps"], "perhaps"),
        (["plan", "a", "--gpu-memory-utilization", "most"], "most"),
        (["plan", "a", "--gpu-memory-utilization", "nan"], "--gpu-memory-utilization is nan"),
        (["plan", "a", "--port", "80"], "unknown option: --port"),
        (["serve", "a", "--port", "80000"], "--port is 80000"),
        (["--frobnicate"], "--frobnicate"),
    ],
)
def test_other_bad_input(capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert expected in captured.err
