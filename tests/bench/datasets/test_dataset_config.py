"""Settings that would be ignored, or that are out of bounds, are refused."""

from pathlib import Path
from typing import Any

import pytest

from quire.bench.datasets.dataset_config import DatasetConfig
from quire.core.errors import ConfigError

FILE = Path("x.json")


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"dataset_path": FILE}, "--dataset-path has no effect"),
        ({"dataset": "sharegpt"}, "needs a file"),
        ({"dataset": "jsonl", "dataset_path": FILE, "input_len": 3}, "--input-len has no effect"),
        ({"dataset": "jsonl", "dataset_path": FILE, "trace_block": 3}, "--trace-block has no effect"),
        ({"input_len": 0}, "--input-len is 0"),
        ({"output_len": 0}, "--output-len is 0"),
        ({"num_requests": 0}, "--num-requests is 0"),
        ({"range_ratio": 1.0}, "--range-ratio is 1.0"),
        ({"prefix_groups": 2}, "--prefix-groups has no effect"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        DatasetConfig(**settings)
