"""Parameters and KV of released models by their configs, as their authors give them."""

from typing import Any

import pytest

from quire.models.loading.header import config_facts
from quire.spec.cache import elements_per_token

GPT_OSS: dict[str, Any] = {
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_attention_heads": 64,
    "vocab_size": 201088,
    "max_position_embeddings": 131072,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 32.0,
        "truncate": False,
        "original_max_position_embeddings": 4096,
    },
}
PHI: dict[str, Any] = {
    "model_type": "phimoe",
    "hidden_size": 4096,
    "intermediate_size": 6400,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "vocab_size": 32064,
    "max_position_embeddings": 131072,
    "sliding_window": 131072,
    "attention_bias": True,
    "lm_head_bias": True,
}
LLAMA4: dict[str, Any] = {
    "model_type": "llama4_text",
    "hidden_size": 5120,
    "intermediate_size": 8192,
    "num_attention_heads": 40,
    "num_hidden_layers": 48,
    "vocab_size": 202048,
    "max_position_embeddings": 1048576,
}
MAVERICK = {"num_local_experts": 128, "interleave_moe_layer_step": 2, "use_qk_norm": False}


@pytest.mark.parametrize(
    ("config", "billions", "active", "bytes_of_token", "windows"),
    [
        pytest.param(GPT_OSS | {"num_hidden_layers": 24, "num_local_experts": 32}, 20.9, 4.2, 49152, 12, id="20b"),
        pytest.param(GPT_OSS | {"num_hidden_layers": 36, "num_local_experts": 128}, 116.8, 5.7, 73728, 18, id="120b"),
        pytest.param(PHI, 41.9, 6.6, 131072, 0, id="phi-3.5-moe"),
        pytest.param(LLAMA4, 107.8, 17.2, 196608, 36, id="scout"),
        pytest.param(LLAMA4 | MAVERICK, 400.7, 17.2, 196608, 36, id="maverick"),
    ],
)
def test_sizes(config: dict[str, Any], billions: float, active: float, bytes_of_token: int, windows: int) -> None:
    """KV in 16 bits; active parameters are counted with both embeddings."""
    facts = config_facts("released", config)
    spec = facts.spec
    assert round(facts.num_parameters / 1e9, 1) == billions
    assert round(facts.num_active_parameters / 1e9, 1) == active
    assert 2 * sum(map(elements_per_token, spec.caches)) == bytes_of_token
    assert sum(window is not None for window in spec.windows) == windows
