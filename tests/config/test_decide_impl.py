"""Whose code a model is, and what its modules cannot do."""

from dataclasses import replace

import pytest

from quire.config.devices import DEVICES
from quire.config.engine import EngineConfig
from quire.config.resolve import resolve
from quire.core.errors import ConfigError
from quire.models.registry import describe
from tests.config.examples import LLAMA_3_8B, LLAMA_3_8B_CONFIG

CPU = replace(DEVICES["cpu"], memory_bytes=64 * 2**30, host_memory_bytes=64 * 2**30)

THROUGH_TRANSFORMERS = replace(
    LLAMA_3_8B,
    spec=describe(LLAMA_3_8B_CONFIG, "config.json", "transformers"),
    other_bytes={"bfloat16": LLAMA_3_8B.total_weight_bytes},
)


def asked(**settings: object) -> EngineConfig:
    return EngineConfig.from_flat(model="m", **settings)


def test_torch_computes_what_transformers_has_code_for() -> None:
    resolved = resolve(asked(model_impl="transformers"), THROUGH_TRANSFORMERS, CPU)
    assert resolved.uses_transformers
    assert not resolved.cpu_core
    reasons = {choice.name: choice.reason for choice in resolved.choices}
    assert reasons["model_impl"] == "its modules, with quire's cache, scheduler and sampling"
    assert reasons["cpu_compute"] == "the modules of transformers are torch's"


def test_weights_that_nothing_describes_count_in_full_and_in_the_dtype_of_the_model() -> None:
    assert THROUGH_TRANSFORMERS.num_parameters == LLAMA_3_8B.num_parameters
    asked_for = asked(model_impl="transformers", dtype="float32")
    assert resolve(asked_for, THROUGH_TRANSFORMERS, CPU).weight_bytes == 4 * LLAMA_3_8B.num_parameters
    both = resolve(asked(tensor_parallel_size=2), THROUGH_TRANSFORMERS, DEVICES["h100"])
    assert both.weight_bytes == LLAMA_3_8B.num_parameters


@pytest.mark.parametrize("impl", ["auto", "quire"])
def test_otherwise_it_is_quires_own(impl: str) -> None:
    resolved = resolve(asked(model_impl=impl), LLAMA_3_8B, CPU)
    assert not resolved.uses_transformers
    assert resolved.cpu_core


@pytest.mark.parametrize(("setting", "value"), [("compile", True), ("offload_gb", 1.0)])
def test_what_needs_quires_layers_is_refused(setting: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"--{setting.replace('_', '-')} is for models that quire has code"):
        resolve(asked(model_impl="transformers", **{setting: value}), THROUGH_TRANSFORMERS, DEVICES["h100"])
