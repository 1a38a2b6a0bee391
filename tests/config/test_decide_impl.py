"""Whose code a model is, and what its modules cannot do."""

from dataclasses import replace
from typing import Any

import pytest

from quire.config.devices import DEVICES
from quire.config.engine import EngineConfig
from quire.config.facts import ModelFacts
from quire.config.model import ModelImpl
from quire.config.resolve import resolve
from quire.core.errors import CheckpointError, ConfigError
from quire.models.registry import describe

CPU = replace(DEVICES["cpu"], memory_bytes=64 * 2**30, host_memory_bytes=64 * 2**30)
CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 2048,
}


def facts(impl: ModelImpl, **changes: object) -> ModelFacts:
    """Of a checkpoint whose weights take a megabyte, where the spec does not describe them."""
    spec = describe({**CONFIG, **changes}, "config.json", impl)
    return ModelFacts("m", spec, "bfloat16", other_bytes={} if spec.is_described else {"bfloat16": 1_000_000})


def asked(**settings: object) -> EngineConfig:
    return EngineConfig.from_flat(model="m", **settings)


@pytest.mark.parametrize("model", [facts("transformers"), facts("auto", model_type="starcoder2")])
def test_torch_computes_what_transformers_has_code_for(model: ModelFacts) -> None:
    resolved = resolve(asked(), model, CPU)
    assert resolved.uses_transformers
    assert not resolved.cpu_core
    reasons = {choice.name: choice.reason for choice in resolved.choices}
    assert reasons["model_impl"] == "its modules, with quire's cache, scheduler and sampling"
    assert reasons["cpu_compute"] == "the modules of transformers are torch's"
    assert resolved.weight_bytes >= 1_000_000


@pytest.mark.parametrize("impl", ["auto", "quire"])
def test_otherwise_it_is_quires_own(impl: ModelImpl) -> None:
    resolved = resolve(asked(model_impl=impl), facts(impl), CPU)
    assert not resolved.uses_transformers
    assert resolved.cpu_core


def test_what_quire_has_no_family_for_is_refused_where_its_own_is_asked_for() -> None:
    with pytest.raises(CheckpointError, match="is of type 'starcoder2'; quire runs llama"):
        facts("quire", model_type="starcoder2")


@pytest.mark.parametrize(("setting", "value"), [("compile", True), ("offload_gb", 1.0)])
def test_what_needs_quires_layers_is_refused(setting: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"--{setting.replace('_', '-')} is for models that quire has code"):
        resolve(asked(**{setting: value}), facts("transformers"), DEVICES["h100"])
