"""Loading a fallback: what is refused before anything of the checkpoint is used, and what is checked afterwards."""

import builtins
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from quire.core.errors import CheckpointError, ConfigError
from quire.models.fallback.decoder import FallbackDecoder
from quire.models.fallback.load import load_fallback
from quire.models.registry import describe
from quire.spec.model import ModelSpec
from tests.parity.tiny import Tiny
from tests.parity.tiny_fallback import make_tiny_fallback


@pytest.fixture
def tiny(tmp_path: Path) -> Tiny:
    return make_tiny_fallback("olmo", tmp_path)


def load(path: Path, random_seed: int | None = None, **changes: Any) -> FallbackDecoder:
    file = path / "config.json"
    config = {**json.loads(file.read_text()), **changes}
    file.write_text(json.dumps(config))
    spec = outline(path, config)
    return load_fallback(path, config, spec, dtype=torch.float32, device=torch.device("cpu"), random_seed=random_seed)


def outline(path: Path, config: dict[str, Any]) -> ModelSpec:
    return describe(config, str(path), "transformers")


def test_it_tells_how_layers_attend(tiny: Tiny) -> None:
    model = load(tiny.path)
    assert len(model.layers) == 4
    assert not model.can_be_captured  # without a GPU there are no graphs
    assert [(layer.window, layer.softcap) for layer in model.layers] == [(None, None)] * 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "custom", "auto_map": {"AutoModelForCausalLM": "m.M"}}, "quire runs no code from checkpoints"),
        ({"model_type": "custom"}, "has no causal language model of type 'custom'"),
        ({"quantization_config": {"quant_method": "awq"}}, "its weights are quantized"),
        ({"num_key_value_heads": 4}, "have another shape, model.layers.0.self_attn.k_proj.weight"),
        ({"num_hidden_layers": 5}, "are missing or have another shape, model.layers.4"),
    ],
)
def test_refused(tiny: Tiny, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        load(tiny.path, **changes)


def test_code_in_a_checkpoint_is_not_run(tiny: Tiny) -> None:
    (tiny.path / "evil.py").write_text("raise SystemExit('run')\n")
    load(tiny.path, auto_map={"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"})


def test_only_safetensors_are_read(tiny: Tiny) -> None:
    (tiny.path / "model.safetensors").rename(tiny.path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="transformers does not load it"):
        load(tiny.path)


def test_a_folder_with_an_adapter_is_refused(tiny: Tiny) -> None:
    (tiny.path / "adapter_config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="holds an adapter"):
        load(tiny.path)


def test_a_plan_that_is_not_the_models_is_refused(tiny: Tiny) -> None:
    config = json.loads((tiny.path / "config.json").read_text())
    windows = outline(tiny.path, config | {"sliding_window": 8})
    heads = outline(tiny.path, config | {"num_key_value_heads": 4})
    for spec, message in ((windows, "plans a window of 8"), (heads, r"plans \[1, 4, 13, 16\]")):
        with pytest.raises(CheckpointError, match=message):
            load_fallback(tiny.path, config, spec, dtype=torch.float32, device=torch.device("cpu"))


def test_weights_can_be_random(tiny: Tiny) -> None:
    (tiny.path / "model.safetensors").unlink()
    state = torch.random.get_rng_state()
    first, second, third = (load(tiny.path, random_seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert any(not torch.equal(first[name], third[name]) for name in first)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_tensors_that_the_model_does_not_know_are_passed_over(tiny: Tiny) -> None:
    file = tiny.path / "model.safetensors"
    save_file({**load_file(file), "mtp.weight": torch.ones(2)}, file, {"format": "pt"})
    load(tiny.path)


def test_without_the_library_the_extra_is_named(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    importing = builtins.__import__

    def without(name: str, *given: Any, **named: Any) -> Any:
        if name == "transformers":
            raise ImportError(name)
        return importing(name, *given, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"is not installed here; run `pip install quire\[transformers\]`"):
        load(tiny.path)
