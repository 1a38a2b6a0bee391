"""Whose code a model is, and what its modules cannot do."""

from dataclasses import replace

import pytest

from quire.config.devices import DEVICES
from quire.config.engine import EngineConfig
from quire.config.resolve import resolve
from quire.core.errors import ConfigError
from tests.config.examples import LLAMA_3_8B

CPU = replace(DEVICES["cpu"], memory_bytes=64 * 2**30, host_memory_bytes=64 * 2**30)


def asked(**settings: object) -> EngineConfig:
    return EngineConfig.from_flat(model="m", **settings)


def test_torch_computes_what_transformers_has_code_for() -> None:
    resolved = resolve(asked(model_impl="transformers"), LLAMA_3_8B, CPU)
    assert resolved.uses_transformers
    assert not resolved.cpu_core
    reasons = {choice.name: choice.reason for choice in resolved.choices}
    assert reasons["model_impl"] == "its modules, with quire's cache, scheduler and sampling"
    assert reasons["cpu_compute"] == "the modules of transformers are torch's"


@pytest.mark.parametrize("impl", ["auto", "quire"])
def test_otherwise_it_is_quires_own(impl: str) -> None:
    resolved = resolve(asked(model_impl=impl), LLAMA_3_8B, CPU)
    assert not resolved.uses_transformers
    assert resolved.cpu_core


@pytest.mark.parametrize(("setting", "value"), [("compile", True), ("offload_gb", 1.0)])
def test_what_needs_quires_layers_is_refused(setting: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"--{setting.replace('_', '-')} is for models that quire has code"):
        resolve(asked(model_impl="transformers", **{setting: value}), LLAMA_3_8B, DEVICES["h100"])
