"""`quire pull` says where a model lies and whether it had to come."""

from pathlib import Path

import pytest

from quire.cli import pull as module
from quire.cli.main import main
from quire.engine.fetch import Fetched


def test_what_is_here_is_said_to_be(capsys: pytest.CaptureFixture[str], tiny_chat: Path) -> None:
    assert main(["pull", str(tiny_chat)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert f"is here already: {tiny_chat} (" in captured.out
    assert "kB)" in captured.out


def test_the_default_model_is_pulled(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str | None]] = []

    def fetch(model: str, revision: str | None) -> Fetched:
        asked.append((model, revision))
        return Fetched(Path("/models/x.gguf"), 98_360_000, was_here=False)

    monkeypatch.setattr(module, "fetch", fetch)
    assert main(["pull"]) == 0
    assert capsys.readouterr().out == "smollm2 downloaded: /models/x.gguf (98.36 MB)\n"
    assert asked == [("smollm2", None)]


def test_a_name_that_is_nothing_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pull", "./none.gguf"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
