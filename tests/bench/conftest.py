"""One real server for all measurements, and a fresh environment."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.live import LiveServer, running_server
from tests.tiny_chat import write_tiny_chat


@pytest.fixture(autouse=True)
def fresh_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("QUIRE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "160")


@pytest.fixture(scope="session")
def measured_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with running_server(tmp_path_factory.mktemp("measured"), key="k" * 24) as server:
        yield server


@pytest.fixture(scope="session")
def tiny_chat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_chat(tmp_path_factory.mktemp("tiny") / "tiny-chat")
