"""Adapters that cannot be used: each is refused by name, with the tensor or the setting, and harms nobody."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from quire.config.engine import EngineConfig
from quire.config.resolve import resolve
from quire.core.errors import CheckpointError, ConfigError, InvalidRequest
from quire.lora.describe import AdapterLimits, describe_adapter
from quire.lora.registry import AdapterRegistry, NoSuchAdapter
from quire.models.loading.header import read_model_facts
from quire.spec.lora import LAYERS, TARGETS
from quire.spec.model import ModelSpec
from quire.worker.device import device_facts
from tests.lora.peft_folders import rewritten, save_adapter
from tests.models.loading.converted import tiny_model, write_gguf
from tests.parity.tiny import make_tiny

LIMITS = AdapterLimits(16, frozenset({LAYERS}))
A = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
B = A.replace("lora_A", "lora_B")


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModelSpec, Path]:
    pytest.importorskip("peft")
    folder = tmp_path_factory.mktemp("refused")
    tiny = make_tiny("llama", folder / "model")
    save_adapter(tiny.path, folder / "good", seed=1, rank=4, target_modules=["q_proj", "down_proj"])
    return read_model_facts(str(tiny.path)).spec, folder / "good"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"bias": "all"}, "bias is 'all'"),
        ({"peft_type": "IA3"}, "peft_type is 'IA3'"),
        ({"r": 8}, "rank 4, but adapter_config.json gives"),
        ({"use_dora": True}, "lacks its magnitudes"),
        ({"lora_bias": True}, "lora_bias"),
        ({"lora_alpha": "much"}, "lora_alpha is 'much'"),
        ({"rank_pattern": {"(a+)+": 3}}, "no groups"),
    ],
)
def test_settings(spec: tuple[ModelSpec, Path], tmp_path: Path, settings: dict[str, object], told: str) -> None:
    model, good = spec
    with pytest.raises(CheckpointError, match=told.replace("(", r"\(")):
        describe_adapter(rewritten(good, tmp_path / "bad", None, **settings), model, LIMITS)


def test_tensors(spec: tuple[ModelSpec, Path], tmp_path: Path) -> None:
    model, good = spec
    stored = load_file(good / "adapter_model.safetensors")
    changed = {
        "no B": {name: each for name, each in stored.items() if name != B},
        "other shape": stored | {A: torch.zeros(4, 60)},
        "other rows": stored | {B: torch.zeros(60, 4)},
        "integers": stored | {A: stored[A].to(torch.int8)},
        "unknown": stored | {"base_model.model.model.layers.9.self_attn.q_proj.lora_A.weight": stored[A].clone()},
        "whole": stored | {"base_model.model.model.norm.weight": torch.zeros(64)},
    }
    told = {
        "no B": "no lora_B",
        "other shape": "another model",
        "other rows": "another model",
        "integers": "is int8",
        "unknown": r"layers\.9",
        "whole": "neither an A nor a B",
    }
    for name, tensors in changed.items():
        with pytest.raises(CheckpointError, match=told[name]):
            describe_adapter(rewritten(good, tmp_path / name.replace(" ", "-"), tensors), model, LIMITS)


def test_a_rank_beyond_the_limit_and_matrices_without_room(spec: tuple[ModelSpec, Path], tmp_path: Path) -> None:
    model, good = spec
    with pytest.raises(CheckpointError, match=r"rank 4, and the server takes up to 2; raise --max-lora-rank"):
        describe_adapter(good, model, AdapterLimits(2, LIMITS.targets))
    stored = load_file(good / "adapter_model.safetensors")
    head = {"base_model.model.lm_head.lora_A.weight": torch.zeros(4, 64)}
    head["base_model.model.lm_head.lora_B.weight"] = torch.zeros(199, 4)
    with pytest.raises(CheckpointError, match="--lora-targets head,layers"):
        describe_adapter(rewritten(good, tmp_path / "head", stored | head), model, LIMITS)


def test_a_pickle_is_never_opened(spec: tuple[ModelSpec, Path], tmp_path: Path) -> None:
    model, good = spec
    bad = tmp_path / "pickled"
    bad.mkdir()
    (bad / "adapter_config.json").write_text((good / "adapter_config.json").read_text())
    (bad / "adapter_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(CheckpointError, match="a pickle"):
        describe_adapter(bad, model, LIMITS)


@pytest.mark.parametrize(
    ("family", "module"),
    [
        ("gpt_oss", "mlp.experts"),
        ("granitemoe", "block_sparse_moe.experts"),
        ("granitemoe", "block_sparse_moe.input_linear"),
        ("llama4", "feed_forward.experts"),
    ],
)
def test_experts_that_are_one_tensor(family: str, module: str, tmp_path: Path) -> None:
    """As peft saves them: A and B of all experts, one below the other. None is left out silently."""
    tiny = make_tiny(family, tmp_path / "model")
    model = read_model_facts(str(tiny.path)).spec
    folder = adapter_of(f"base_model.model.model.layers.1.{module}", tmp_path / "adapter")
    with pytest.raises(CheckpointError, match=rf"layers\.1\.{module}'.* one tensor for all of a layer"):
        describe_adapter(folder, model, AdapterLimits(16, frozenset(TARGETS)))
    other = adapter_of("base_model.model.model.layers.1.mlp.nothing", tmp_path / "other")
    with pytest.raises(CheckpointError, match="no matrix of"):
        describe_adapter(other, model, AdapterLimits(16, frozenset(TARGETS)))
    asked = EngineConfig.from_flat(model=str(tiny.path), enable_lora=True, lora_targets="experts")
    with pytest.raises(ConfigError, match="--lora-targets has experts"):
        resolve(asked, read_model_facts(str(tiny.path)), device_facts(torch.device("cpu")))


@pytest.mark.parametrize("module", ["mlp.experts", "block_sparse_moe.experts.2.w1"])
def test_experts_of_a_gguf_file(module: str, tmp_path: Path) -> None:
    """They are one tensor there, whatever they were in the folder that was converted."""
    path = write_gguf(tmp_path / "model.gguf", "mixtral", tiny_model("mixtral"))
    folder = adapter_of(f"base_model.model.model.layers.1.{module}", tmp_path / "adapter")
    with pytest.raises(CheckpointError, match=rf"layers\.1\.{module}'.* one tensor for all of a layer"):
        describe_adapter(folder, read_model_facts(str(path)).spec, AdapterLimits(16, frozenset(TARGETS)))


def adapter_of(module: str, folder: Path) -> Path:
    folder.mkdir()
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 4}')
    tensors = {f"{module}.lora_A.weight": torch.zeros(16, 64), f"{module}.lora_B.weight": torch.zeros(64, 16)}
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def test_names_and_links_do_not_lead_out_of_the_folder(spec: tuple[ModelSpec, Path], tmp_path: Path) -> None:
    model, good = spec
    folder = tmp_path / "all"
    folder.mkdir()
    (folder / "linked").symlink_to(good)
    registry = AdapterRegistry(model, LIMITS, folder)
    assert registry.find("linked") is None
    assert registry.find("../good") is None
    with pytest.raises(InvalidRequest, match="cannot be an adapter's name"):
        registry.load("../x", str(good))


def test_a_name_under_the_folder_is_not_asked_of_the_hub(
    spec: tuple[ModelSpec, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loras").mkdir()
    monkeypatch.chdir(tmp_path)
    registry = AdapterRegistry(spec[0], LIMITS, Path("loras"))
    assert registry.allowed("loras/sql") == str(tmp_path / "loras" / "sql")
    with pytest.raises(NoSuchAdapter, match="no hub id"):
        registry.load("sql", registry.allowed("loras/sql"))
    with pytest.raises(InvalidRequest, match="--lora-dir"):
        registry.allowed("owner/sql")


def test_a_name_that_no_system_takes_leads_nowhere(spec: tuple[ModelSpec, Path]) -> None:
    registry = AdapterRegistry(spec[0], LIMITS)
    for path in ("x" * 4000, "~nobody-of-this-name/sql", "nul\0"):
        with pytest.raises(NoSuchAdapter):
            registry.load("sql", path)
