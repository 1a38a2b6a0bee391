"""`quire quantize` writes a model, says what it costs, and refuses in one line."""

from pathlib import Path

import pytest

from quire.cli.main import main


def test_it_writes_and_says_what_it_costs(capsys: pytest.CaptureFixture[str], tiny_chat: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["quantize", str(tiny_chat), str(out), "--scheme", "int8", "--method", "rtn"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"int8 in {out} (")
    assert second.startswith("perplexity on ")
    assert " before, " in second


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--scheme", "int5"], "--scheme is 'int5'; quire has fp8, int8, int4"),
        (["--scheme", "int4", "--method", "guess"], "--method is 'guess'; quire has rtn, gptq, awq"),
        (["--scheme", "fp8", "--method", "awq"], "--method is awq, which is for --scheme int8, int4"),
        (["--scheme", "q4_0", "--method", "gptq"], "--method is gptq, which is for --scheme fp8, int8, int4"),
        (["--scheme", "int4", "--group-size", "7"], "--group-size is 7; give a multiple of 16"),
        (["--scheme", "int4"], "has 48 columns, which none of 128, 64, 32 divides"),
        (["--scheme", "int4", "--group-size", "32"], "--group-size 32 does not divide the 48 columns"),
        (["--scheme", "int8", "--asymmetric"], "--group-size and --asymmetric are for --scheme int4"),
        (["--scheme", "int8", "--method", "rtn", "--calibration", "x"], "reads no text"),
        (["--scheme", "int4", "--group-size", "16", "--calibration", "x.txt"], "--calibration x.txt cannot be read"),
    ],
)
def test_what_is_wrong_is_one_line(
    capsys: pytest.CaptureFixture[str], tiny_chat: Path, tmp_path: Path, arguments: list[str], said: str
) -> None:
    out = tmp_path / "out"
    assert main(["quantize", str(tiny_chat), str(out), "--no-perplexity", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_model_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["quantize", "./nothing", str(tmp_path / "out"), "--scheme", "fp8"]) == 2
    assert "there is no file or folder './nothing'" in capsys.readouterr().err
