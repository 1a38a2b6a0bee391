"""Decisions about the native core of a CPU."""

from dataclasses import replace

import pytest

from quire.config.devices import DEVICES
from quire.config.engine import EngineConfig
from quire.config.resolve import resolve
from quire.config.resolved import Resolved
from quire.core.errors import ConfigError
from quire.models.loading.header import config_facts
from tests.config.examples import LLAMA_3_8B, TINY_CONFIG, stored_as

CPU = replace(DEVICES["cpu"], memory_bytes=64 * 2**30, host_memory_bytes=64 * 2**30)
WITHOUT_CORE = replace(CPU, has_cpu_core=False)
NORMS = 65 * 4096
"""Elements of norms, which are float32 whatever the matrices are."""
IN_MATRICES = LLAMA_3_8B.num_parameters - NORMS


def asked(**settings: object) -> EngineConfig:
    return EngineConfig.from_flat(model="m", **settings)


def reason(resolved: Resolved, name: str) -> str:
    return next(choice.reason for choice in resolved.choices if choice.name == name)


@pytest.mark.parametrize(
    ("kind", "group_bytes"), [("Q4_K", 20), ("Q4_0", 20), ("MXFP4", 17), ("Q6_K", 34), ("Q8_0", 34)]
)
def test_packed_weights_stay_packed_in_four_or_eight_bits(kind: str, group_bytes: int) -> None:
    resolved = resolve(asked(), stored_as(LLAMA_3_8B, kind), CPU)
    assert resolved.cpu_core
    assert resolved.keep_packed
    assert (resolved.dtype, resolved.kv.dtype) == ("float32", "float16")
    assert resolved.weight_bytes == IN_MATRICES // 32 * group_bytes + NORMS * 4


def test_plain_weights_stay_as_they_are_stored() -> None:
    resolved = resolve(asked(), LLAMA_3_8B, CPU)
    assert (resolved.dtype, resolved.kv.dtype) == ("float32", "bfloat16")
    assert resolved.weight_bytes == IN_MATRICES * 2 + NORMS * 4


def test_kv_is_kept_in_what_tiles_multiply() -> None:
    with_tiles = replace(CPU, has_tiles=True)
    half, whole = (replace(LLAMA_3_8B, dtype=dtype) for dtype in ("float16", "float32"))
    assert resolve(asked(), half, with_tiles).kv.dtype == "bfloat16"
    assert resolve(asked(), half, CPU).kv.dtype == "float16"
    assert resolve(asked(), whole, with_tiles).kv.dtype == "float32"  # bfloat16 would lose what the checkpoint has


def test_exact_computes_on_expanded_weights() -> None:
    resolved = resolve(asked(cpu_compute="exact"), LLAMA_3_8B, CPU)
    assert not resolved.cpu_core
    assert reason(resolved, "cpu_compute") == "asked for"


def test_without_the_core_torch_computes_and_says_so() -> None:
    resolved = resolve(asked(), LLAMA_3_8B, WITHOUT_CORE)
    assert not resolved.cpu_core
    assert reason(resolved, "cpu_compute") == "quire's native core is not installed here"


def test_expanded_weights_are_computed_by_the_core_in_float32() -> None:
    resolved = resolve(asked(packed_weights="expand"), stored_as(LLAMA_3_8B, "Q4_0"), CPU)
    assert resolved.cpu_core
    assert not resolved.keep_packed
    assert resolved.weight_bytes == LLAMA_3_8B.num_parameters * 4


def test_kv_in_any_float_that_the_core_stores() -> None:
    assert resolve(asked(kv_cache_dtype="float16"), LLAMA_3_8B, CPU).kv.dtype == "float16"
    told = "fp8, which quire stores on GPUs, but the model runs on cpu; use one of auto, .*, int8"
    with pytest.raises(ConfigError, match=told):
        resolve(asked(kv_cache_dtype="fp8"), LLAMA_3_8B, CPU)


@pytest.mark.parametrize("compute", ["fast", "exact"])
def test_int8_kv_counts_its_scales(compute: str) -> None:
    resolved, usual = (
        resolve(asked(kv_cache_dtype=each, cpu_compute=compute), LLAMA_3_8B, CPU) for each in ("int8", "bfloat16")
    )
    assert resolved.kv.dtype == "int8"
    assert usual.kv.bytes_per_token == 32 * 2 * 8 * 128 * 2
    assert resolved.kv.bytes_per_token == 32 * 2 * 8 * (128 + 4)
    assert resolved.kv.num_blocks > 1.9 * usual.kv.num_blocks


@pytest.mark.parametrize("settings", [{"cpu_compute": "exact"}, {"cpu_threads": 4}])
def test_a_gpu_refuses_settings_of_a_cpu(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"--cpu-(compute|threads) is (exact|4), but the model runs on h100"):
        resolve(asked(**settings), LLAMA_3_8B, DEVICES["h100"])


def test_experts_are_computed_by_the_core() -> None:
    model = config_facts("mixtral", {**TINY_CONFIG, "model_type": "mixtral"})
    assert resolve(asked(), model, CPU).cpu_core
    with pytest.raises(ConfigError, match="--compile is for layers without experts"):
        resolve(asked(compile=True), model, DEVICES["h100"])


def test_threads_have_bounds() -> None:
    with pytest.raises(ConfigError, match="--cpu-threads is 0, but it must be 1 to 1024"):
        asked(cpu_threads=0)


EXPERTS = {"num_experts_per_tok": 1, "num_local_experts": 2, "num_hidden_layers": 4}


@pytest.mark.parametrize("model_type", ["gpt_oss", "llama4_text"])
def test_sinks_and_chunks_are_computed_by_the_core(model_type: str) -> None:
    config = TINY_CONFIG | EXPERTS | {"model_type": model_type, "attention_chunk_size": 16}
    assert resolve(asked(), config_facts("m", config), CPU).cpu_core


@pytest.mark.parametrize(
    ("config", "lacking"),
    [
        ({"model_type": "gpt_oss", "intermediate_size": 40}, "experts of 40 × 64, which are not multiples of 16"),
        ({"model_type": "mixtral", "hidden_act": "quick_gelu"}, "activation quick_gelu"),
    ],
)
def test_what_the_core_lacks_is_left_to_torch(config: dict[str, object], lacking: str) -> None:
    resolved = resolve(asked(), config_facts("m", TINY_CONFIG | EXPERTS | config), CPU)
    assert not resolved.cpu_core
    assert reason(resolved, "cpu_compute") == f"the native core has no {lacking}"
