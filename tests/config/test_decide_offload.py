"""What --offload-gb comes to for models with experts: slots on a GPU, and what a CPU leaves in its file."""

from dataclasses import replace

import pytest

from quire.config.devices import DEVICES
from quire.config.resolve import resolve
from quire.core.errors import ConfigError, DoesNotFit
from quire.models.loading.header import config_facts
from tests.config.examples import asked, stored_as

CONFIG = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "vocab_size": 151_936,
    "max_position_embeddings": 40_960,
    "torch_dtype": "bfloat16",
}
QWEN_30B = config_facts("Qwen3-30B-A3B", CONFIG)
A_SLOT = 48 * 3 * 2048 * 768 * 2
"""Bytes of one expert of every layer."""


def test_a_30b_model_fits_a_card_of_24_gib() -> None:
    with pytest.raises(DoesNotFit):
        resolve(asked(max_model_len=4096), QWEN_30B, DEVICES["a10g"])
    found = resolve(asked(max_model_len=4096, offload_gb=45.0), QWEN_30B, DEVICES["a10g"])
    away = -(-45 * 2**30 // A_SLOT)
    assert found.expert_slots == 128 - away
    assert found.offloaded_layers == 0
    here = resolve(asked(max_model_len=4096), QWEN_30B, DEVICES["h100"])
    assert found.weight_bytes == here.weight_bytes - away * A_SLOT
    assert any(choice.name == "expert_slots" and f"{128 - away} of 128" in choice.value for choice in found.choices)


def test_a_token_has_room_for_its_experts() -> None:
    found = resolve(asked(max_model_len=4096, offload_gb=200.0), QWEN_30B, DEVICES["a10g"])
    assert found.expert_slots == 8


def test_all_experts_for_every_token_leave_nothing_to_offload() -> None:
    dense = config_facts("dense", CONFIG | {"num_experts": 8})
    with pytest.raises(ConfigError, match="asks for all 8 experts"):
        resolve(asked(offload_gb=1.0), dense, DEVICES["h100"])


def test_adapters_of_experts_are_refused() -> None:
    with pytest.raises(ConfigError, match="--lora-targets has experts"):
        resolve(asked(offload_gb=10.0, enable_lora=True, lora_targets="layers,experts"), QWEN_30B, DEVICES["h100"])


def test_a_cpu_leaves_experts_in_their_file() -> None:
    packed = stored_as(QWEN_30B, "Q4_0")
    small = replace(DEVICES["cpu"], memory_bytes=16 << 30, host_memory_bytes=16 << 30)
    settings = {"max_model_len": 4096, "gpu_memory_utilization": 0.9}
    with pytest.raises(DoesNotFit):
        resolve(asked(**settings), packed, small)
    found = resolve(asked(**settings, offload_gb=8.0), packed, small)
    roomy = resolve(asked(**settings), packed, replace(small, memory_bytes=64 << 30, host_memory_bytes=64 << 30))
    assert found.expert_slots == 0
    assert found.weight_bytes == roomy.weight_bytes - 8 * 2**30
    with pytest.raises(ConfigError, match="only experts that the native core computes"):
        resolve(asked(cpu_compute="exact", **settings, offload_gb=8.0), packed, small)


def test_experts_that_are_spread_over_ranks_stay_on_their_devices() -> None:
    with pytest.raises(ConfigError, match="--enable-expert-parallel gives every rank experts of its own"):
        resolve(asked(offload_gb=10.0, enable_expert_parallel=True, tensor_parallel_size=2), QWEN_30B, DEVICES["h100"])
