"""`quire serve`: checks its settings, then says what is not built yet."""

import pytest

from quire.cli.main import main


def test_serve_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "m", "--port", "0", "--log-format", "json"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "the HTTP server is not built yet; `quire chat`" in captured.err
