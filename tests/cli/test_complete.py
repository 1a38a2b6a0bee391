"""`quire complete`: the text and nothing else, or all of it as JSON."""

import io
import json
import sys

import pytest

from quire.cli.main import main


def completed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["complete", *arguments]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def test_text_and_json_say_the_same(capsys: pytest.CaptureFixture[str], run_tiny: list[str]) -> None:
    text = completed(capsys, "the quick", "--max-tokens", "9", *run_tiny)
    document = json.loads(completed(capsys, "the quick", "--max-tokens", "9", "--json", "--logprobs", "2", *run_tiny))
    (sequence,) = document["outputs"]
    assert sequence["text"] == text
    assert document["prompt"] == "the quick"
    assert len(sequence["logprobs"]) == len(sequence["token_ids"]) <= 9


def test_a_seed_gives_the_same_text(capsys: pytest.CaptureFixture[str], run_tiny: list[str]) -> None:
    options = ["--temperature", "1", "--seed", "4", "--max-tokens", "12", *run_tiny]
    assert completed(capsys, "the quick", *options) == completed(capsys, "the quick", *options)


def test_the_prompt_may_come_from_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, run_tiny: list[str]
) -> None:
    expected = completed(capsys, "the quick", "--max-tokens", "5", *run_tiny)
    monkeypatch.setattr(sys, "stdin", io.StringIO("the quick"))
    assert completed(capsys, "-", "--max-tokens", "5", *run_tiny) == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "PROMPT"),
        (["x", "--temperature", "-1"], "temperature is -1.0"),
        (["x", "--max-tokens", "0"], "max_tokens is 0"),
        (["x", "--top-k", "1.5"], "--top-k is '1.5'"),
        (["x", "--stop", ""], "stop is ''"),
        (["two", "words"], "unexpected argument 'words'"),
        (["--temprature", "1"], "--temprature"),
        (["--temprature"], "There is no such option"),
        (["x", "--logprobs", "2"], "add --json"),
        (["x", "--model", "./none"], "./none"),
        (["-"], "standard input is empty"),
    ],
)
def test_bad_input_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], expected: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert main(["complete", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert expected in captured.err


def test_a_prompt_beyond_the_context_is_one_line(capsys: pytest.CaptureFixture[str], run_tiny: list[str]) -> None:
    assert main(["complete", "x y " * 400, *run_tiny]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "the context holds 256" in captured.err


@pytest.mark.slow
def test_the_default_model_knows_a_capital(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--max-tokens", "3", "--num-gpu-blocks-override", "64"]
    assert completed(capsys, "The capital of France is", *options).startswith(" Paris")
