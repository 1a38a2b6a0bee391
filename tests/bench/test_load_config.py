"""Loads: what contradicts itself is refused, and traces replay by themselves."""

import math
from pathlib import Path
from typing import Any

import pytest

from quire.bench.datasets.dataset_config import DatasetConfig
from quire.bench.load_config import LoadConfig
from quire.core.errors import ConfigError

RANDOM, TRACE = DatasetConfig(), DatasetConfig(dataset="trace", dataset_path=Path("x.csv"))


@pytest.mark.parametrize(
    "settings",
    [
        {"request_rate": 0.0},
        {"request_rate": math.inf},
        {"burstiness": 1.0},
        {"request_rate": 1.0, "burstiness": 0.0},
        {"request_rate": 1.0, "replay_speed": 1.0},
        {"replay_speed": -1.0},
        {"concurrency": 0},
        {"warmup": -1},
        {"timeout": 0.0},
    ],
)
def test_wrong_loads_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="--"):
        LoadConfig(**settings)


def test_a_trace_is_replayed_unless_something_else_is_asked_for() -> None:
    assert LoadConfig().speed_for(TRACE) == 1.0
    assert LoadConfig(replay_speed=4.0).speed_for(TRACE) == 4.0
    assert LoadConfig(request_rate=2.0).speed_for(TRACE) is None
    assert LoadConfig(concurrency=2).speed_for(TRACE) is None
    assert LoadConfig().speed_for(RANDOM) is None


def test_words() -> None:
    assert LoadConfig().describe(RANDOM) == "all at once"
    assert LoadConfig(request_rate=2.5, concurrency=4).describe(RANDOM) == "2.5 requests a second, 4 at a time"
    assert LoadConfig(concurrency=4).describe(RANDOM) == "4 at a time"
    assert LoadConfig(replay_speed=2.0).describe(TRACE) == "as the trace has them, 2 × as fast"
