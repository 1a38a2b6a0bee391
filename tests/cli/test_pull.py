"""`quire pull` says where a model lies and whether it had to come."""

from pathlib import Path

import pytest

from quire.cli import pull as module
from quire.cli.main import main
from quire.models.loading.fetch import Fetched
from quire.models.loading.gguf_choice import choose, gguf_models


def test_what_is_here_is_said_to_be(capsys: pytest.CaptureFixture[str], tiny_chat: Path) -> None:
    assert main(["pull", str(tiny_chat)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert f"is here already: {tiny_chat} (" in captured.out
    assert "kB)" in captured.out


def test_the_default_model_is_pulled(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str | None]] = []

    def fetch(model: str, revision: str | None, file: str | None) -> Fetched:
        asked.append((model, revision))
        return Fetched(Path("/models/x.gguf"), 98_360_000, was_here=False)

    monkeypatch.setattr(module, "fetch", fetch)
    assert main(["pull"]) == 0
    assert capsys.readouterr().out == "smollm2 downloaded: /models/x.gguf (98.36 MB)\n"
    assert asked == [("smollm2", None)]


def test_a_name_that_is_nothing_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pull", "./none.gguf"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_several_files_are_listed_with_their_sizes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"a-Q4_K_M.gguf": 98_360_000, "b-00001-of-00002.gguf": 10, "b-00002-of-00002.gguf": 10}

    def fetch(model: str, revision: str | None, file: str | None) -> Fetched:
        found = choose(model, gguf_models(sizes), None, file)
        return Fetched(Path("/models") / found.files[0], found.size, was_here=False)

    monkeypatch.setattr(module, "fetch", fetch)
    monkeypatch.setattr(module, "find_here", lambda *_: None)
    assert main(["pull", "me/tiny"]) == 2
    assert capsys.readouterr().out.splitlines() == [
        "me/tiny has 2 GGUF models:",
        "  b-00001-of-00002.gguf  20 B, 2 parts",
        "  a-Q4_K_M.gguf          98.36 MB",
        "Choose one: `quire pull me/tiny:Q4_K_M`, or `quire pull me/tiny --file b-00001-of-00002.gguf`.",
    ]
    assert main(["pull", "me/tiny", "--file", "a-Q4_K_M.gguf"]) == 0
    assert capsys.readouterr().out == "me/tiny downloaded: /models/a-Q4_K_M.gguf (98.36 MB)\n"
