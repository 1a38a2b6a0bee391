"""`quire run-batch`: files in, files out, and what it says about them."""

import json
from pathlib import Path
from typing import Any

import pytest

from quire.cli.main import main


def write(path: Path, *bodies: dict[str, Any]) -> str:
    lines = [
        {"custom_id": str(number), "method": "POST", "url": "/v1/completions", "body": body}
        for number, body in enumerate(bodies)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def test_a_file_of_requests(capsys: pytest.CaptureFixture[str], tmp_path: Path, run_tiny: list[str]) -> None:
    source = write(tmp_path / "in.jsonl", *({"prompt": "the quick", "max_tokens": 3, "model": "tiny"},) * 3)
    target = tmp_path / "out.jsonl"
    command = ["run-batch", source, str(target), "--served-model-name", "tiny", *run_tiny]
    assert main(command) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "quire: 3 answered in" in captured.err
    assert "tok/s" in captured.err
    entries = [json.loads(line) for line in target.read_text().splitlines()]
    assert sorted(entry["custom_id"] for entry in entries) == ["0", "1", "2"]
    assert {entry["response"]["body"]["model"] for entry in entries} == {"tiny"}

    before = target.read_bytes()
    assert main(command) == 0
    assert "nothing to do: all of 3 requests" in capsys.readouterr().err
    assert target.read_bytes() == before

    target.write_bytes(before[:-20])
    assert main(command) == 0
    assert "1 answered, 2 had their result already" in capsys.readouterr().err
    assert len(target.read_text().splitlines()) == 3


def test_failures_are_counted(capsys: pytest.CaptureFixture[str], tmp_path: Path, run_tiny: list[str]) -> None:
    source = write(tmp_path / "in.jsonl", {"prompt": "x", "suffix": "y"}, {"prompt": "x", "max_tokens": 1})
    assert main(["run-batch", source, str(tmp_path / "out.jsonl"), *run_tiny]) == 1
    assert "1 answered, 1 failed" in capsys.readouterr().err


def test_an_empty_file_has_nothing_to_do(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["run-batch", write(tmp_path / "in.jsonl"), str(tmp_path / "out.jsonl")]) == 0
    assert "nothing to do" in capsys.readouterr().err


def test_bad_paths_are_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", {"prompt": "x"})
    other = write(tmp_path / "other.jsonl", {"prompt": "x"})
    for arguments, expected in (
        ([], "INPUT"),
        ([source], "OUTPUT"),
        ([str(tmp_path / "none"), "out"], "there is no file"),
        ([str(tmp_path), "out"], "there is no file"),
        ([source, source], "both the input and the output"),
        ([source, other], "is no result of a batch"),
        ([source, str(tmp_path / "none" / "out")], "there is no folder"),
        ([source, str(tmp_path)], "cannot write"),
    ):
        assert main(["run-batch", *arguments]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.count("\n") == 1
        assert expected in captured.err
