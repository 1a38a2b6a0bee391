"""A whole tiny model, for tests that run the engine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.config.engine import EngineConfig
from quire.engine.engine import Engine, start_engine
from quire.engine.text.template_process import TemplateProcess
from tests.engine.tiny_chat import write_tiny_chat


@pytest.fixture(scope="session")
def tiny_chat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_chat(tmp_path_factory.mktemp("tiny") / "tiny-chat")


@pytest.fixture(scope="session")
def template_process() -> Iterator[TemplateProcess]:
    process = TemplateProcess()
    yield process
    process.close()


@pytest.fixture
def engine(tiny_chat: Path) -> Iterator[Engine]:
    engine, _ = start_engine(EngineConfig.from_flat(model=str(tiny_chat), num_gpu_blocks_override=64))
    yield engine
    engine.close()
