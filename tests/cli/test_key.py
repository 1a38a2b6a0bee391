"""`quire key` shows a key once and keeps its hash."""

import re
from pathlib import Path

import pytest

from quire.cli.main import main
from quire.server.gate.keys import KeyRing
from quire.server.gate.keys_file import parse_keys, read_keys


def shown(text: str) -> str:
    (secret,) = re.findall(r"^  (quire-\S+)$", text, re.MULTILINE)
    return str(secret)


def test_the_key_and_its_entry_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["key", "alice", "--requests-per-minute", "60", "--models", "big, small", "--admin"]) == 0
    out = capsys.readouterr().out
    entry = "\n".join(line[2:] for line in out.partition("keys file:\n")[2].splitlines())
    (key,) = parse_keys(entry, "x")
    assert KeyRing([key]).find(shown(out).encode()) == key
    assert key.limits.requests_per_minute == 60
    assert key.models == frozenset({"big", "small"})
    assert key.admin
    assert out.count(shown(out)) == 1


def test_the_entry_is_added_to_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    assert main(["key", "a", "--append", str(path), "--cache-salt", "shared", "--weight", "0.5"]) == 0
    assert main(["key", "b", "--append", str(path), "--tokens-per-minute", "100"]) == 0
    out = capsys.readouterr().out
    a, b = read_keys(path)
    assert (a.shares_cache, a.weight, b.limits.tokens_per_minute) == (True, 0.5, 100)
    for secret in re.findall(r"quire-\S+", out):
        assert secret not in path.read_text()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["a b"], "a name is made of"),
        (["a", "--concurrency", "0"], "gives concurrency as something else than"),
        (["a", "--models", ","], "gives models as something else than a list"),
        (["a", "--cache-salt", "mine"], "mine"),
        (["a", "--append", "/none/there/keys.yaml"], "No such file"),
        ([], "NAME"),
    ],
)
def test_mistakes_are_one_line_and_show_no_key(
    capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    assert main(["key", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert expected.lower() in captured.err.lower()
