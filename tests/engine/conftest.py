"""A whole tiny model, for tests that run the engine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.config.engine import EngineConfig
from quire.engine.engine import Engine, start_engine


@pytest.fixture
def engine(tiny_chat: Path) -> Iterator[Engine]:
    engine, _ = start_engine(EngineConfig.from_flat(model=str(tiny_chat), num_gpu_blocks_override=64))
    yield engine
    engine.close()
