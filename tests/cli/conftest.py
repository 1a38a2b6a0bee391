"""Commands run as in a fresh terminal: no QUIRE_ variables, a fixed width, and a small model at hand."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.models.loading.files import LLAMA_3_8B, write_config
from tests.tiny_chat import write_tiny_chat


@pytest.fixture(autouse=True)
def fresh_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("QUIRE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture(autouse=True)
def loaders_end_first() -> Iterator[None]:
    """A command may end before its weights are all in place; a real process waits for that, with its streams open."""
    yield
    for thread in threading.enumerate():
        if thread.name == "quire-loader":
            thread.join()


@pytest.fixture
def llama(tmp_path: Path) -> str:
    """A folder that plans as Llama-3-8B."""
    return str(write_config(tmp_path / "Meta-Llama-3-8B", LLAMA_3_8B))


@pytest.fixture(scope="session")
def tiny_chat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole tiny model that can be run."""
    return write_tiny_chat(tmp_path_factory.mktemp("tiny") / "tiny-chat")


@pytest.fixture
def run_tiny(tiny_chat: Path) -> list[str]:
    """What to put behind a command that runs a model."""
    return ["--model", str(tiny_chat), "--num-gpu-blocks-override", "64"]
