"""Sliding windows by layer, by every rule configs use."""

from typing import Any

import pytest

from quire.models.loading.hf_fields import HFFields
from quire.models.loading.hf_windows import layer_windows


def windows(model_type: str = "llama", num_layers: int = 6, **fields: Any) -> tuple[int | None, ...]:
    return layer_windows(HFFields(fields, "config.json"), model_type, num_layers, 8192)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ()),
        ({"sliding_window": None}, ()),
        ({"sliding_window": 0}, ()),
        ({"sliding_window": 8192}, ()),  # as long as the context: no window at all
        ({"sliding_window": 100}, (100,) * 6),
        ({"sliding_window": 100, "use_sliding_window": False}, ()),
        ({"sliding_window": 100, "use_sliding_window": True, "max_window_layers": 4}, (None,) * 4 + (100,) * 2),
        ({"sliding_window": 100, "max_window_layers": 0}, (100,) * 6),
        ({"sliding_window": 100, "max_window_layers": 6}, ()),
        ({"sliding_window": 100, "sliding_window_pattern": 3}, (100, 100, None) * 2),
        ({"sliding_window": 100, "layer_types": ["sliding_attention", "full_attention"] * 3}, (100, None) * 3),
        ({"sliding_window": None, "layer_types": ["full_attention"] * 6}, ()),
    ],
)
def test_rules(fields: dict[str, Any], expected: tuple[int | None, ...]) -> None:
    assert windows(**fields) == expected


def test_families_whose_rule_is_in_their_code() -> None:
    assert windows("gemma2", sliding_window=100) == (100, None) * 3
    assert windows("gemma3_text", sliding_window=100) == (100,) * 5 + (None,)
