"""Facts and settings that several tests start from."""

from dataclasses import replace

from quire.config.devices import DEVICES
from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts, ModelFacts

LLAMA_3_8B = ModelFacts(
    name="Meta-Llama-3-8B",
    architecture="LlamaForCausalLM",
    num_layers=32,
    hidden_size=4096,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    vocab_size=128_256,
    max_position=8192,
    dtype="bfloat16",
    weight_bytes={"bfloat16": 16_060_522_496},
    num_parameters=8_030_261_248,
)

TINY = ModelFacts(
    name="tiny",
    architecture="LlamaForCausalLM",
    num_layers=4,
    hidden_size=64,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    vocab_size=256,
    max_position=2048,
    dtype="bfloat16",
    weight_bytes={"bfloat16": 1_000_000},
    num_parameters=500_000,
)

H100 = DEVICES["h100"]
CPU = DEVICES["cpu"]


def asked(**settings: object) -> EngineConfig:
    return EngineConfig.from_flat(**{"model": "any", **settings})


def with_memory(device: DeviceFacts, size: int) -> DeviceFacts:
    return replace(device, memory_bytes=size)
