"""`quire route` on the command line: where its settings come from, and what it says of mistakes."""

from pathlib import Path
from typing import Any

import pytest

from quire.cli.main import main
from quire.config.observe import ObserveConfig
from quire.config.router import RouterConfig


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[RouterConfig]:
    """The settings of routers that would have run."""
    found: list[RouterConfig] = []

    def run(config: RouterConfig, observe: ObserveConfig) -> int:
        found.append(config)
        return 0

    monkeypatch.setattr("quire.server.router.run.run_router", run)
    return found


def test_members_of_all_options_are_one_list(started: list[RouterConfig]) -> None:
    assert (
        main(["route", "--member", "http://a:1", "--members", "http://b:2,http://c:3", "--member", "http://d:4"]) == 0
    )
    assert started[0].listed() == ("http://b:2", "http://c:3", "http://a:1", "http://d:4")


def test_settings_come_from_variables_and_a_file(
    started: list[RouterConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "quire.yaml"
    path.write_text(
        "router: {members: 'http://a:1', routing: round-robin, port: 9}\nhealth_interval: 3\nmax_num_seqs: 8\n"
    )
    monkeypatch.setenv("QUIRE_MEMBER_KEY", "inner")
    monkeypatch.setenv("QUIRE_HEALTH_TIMEOUT", "7")
    assert main(["route", "--config", str(path), "--port", "10"]) == 0
    config = started[0]
    assert (config.members, config.routing, config.port) == ("http://a:1", "round-robin", 10)
    assert (config.health_interval, config.health_timeout, config.member_key) == (3, 7, "inner")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no members and no way to get any"),
        (["--member", "host:8000"], "is no member"),
        (["--members-file", "/no/such/file"], "cannot be read"),
        (["--members-kubernetes", "a/b"], "KUBERNETES_SERVICE_HOST"),
        (["--member", "http://a:1", "--replicas", "2"], "--replicas"),
        (["--member", "http://a:1", "--routing", "best"], "routing"),
    ],
)
def test_mistakes_are_named(arguments: list[str], words: str, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert main(["route", "--port", "0", *arguments]) == 2
    assert words in capsys.readouterr().err
