"""Sliding windows by layer, by every rule configs use."""

from collections.abc import Mapping
from typing import Any

import pytest

from quire.models.families.cohere import COHERE2
from quire.models.families.gemma import GEMMA2, GEMMA3
from quire.models.loading.hf_fields import HFFields
from quire.models.loading.hf_windows import layer_windows


NONE = (None,) * 6


def windows(family: Mapping[str, Any] | None = None, **fields: Any) -> tuple[int | None, ...]:
    return layer_windows(HFFields({**(family or {}), **fields}, "config.json"), 6, 8192)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, NONE),
        ({"sliding_window": None}, NONE),
        ({"sliding_window": 0}, NONE),
        ({"sliding_window": 8192}, NONE),  # as long as the context: no window at all
        ({"sliding_window": 100}, (100,) * 6),
        ({"sliding_window": 100, "use_sliding_window": False}, NONE),
        ({"sliding_window": 100, "use_sliding_window": True, "max_window_layers": 4}, (None,) * 4 + (100,) * 2),
        ({"sliding_window": 100, "max_window_layers": 0}, (100,) * 6),
        ({"sliding_window": 100, "max_window_layers": 6}, NONE),
        ({"sliding_window": 100, "sliding_window_pattern": 3}, (100, 100, None) * 2),
        ({"sliding_window": 100, "layer_types": ["sliding_attention", "full_attention"] * 3}, (100, None) * 3),
        ({"sliding_window": None, "layer_types": ["full_attention"] * 6}, NONE),
    ],
)
def test_rules(fields: dict[str, Any], expected: tuple[int | None, ...]) -> None:
    assert windows(**fields) == expected


def test_families_whose_rule_is_in_their_code() -> None:
    assert windows(GEMMA2.defaults, sliding_window=100) == (100, None) * 3
    assert windows(GEMMA3.defaults, sliding_window=100) == (100,) * 5 + (None,)
    assert windows(COHERE2.defaults, sliding_window=100) == (100, 100, 100, None, 100, 100)
