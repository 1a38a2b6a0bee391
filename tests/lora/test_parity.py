"""Adapters of many ranks in one batch against peft: logits within 1e-4 of what peft computes for each alone."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from quire.core.adapter import AdapterRef
from quire.core.errors import CheckpointError
from quire.lora.describe import AdapterLimits, adapter_version, describe_adapter
from quire.lora.registry import AdapterRegistry
from quire.models.loading.header import read_model_facts
from quire.spec.lora import TARGETS
from tests.lora.peft_folders import peft_logits, save_adapter
from tests.models.loading.converted import tiny_model, write_gguf
from tests.parity.runner import Runner
from tests.parity.tiny import VOCABULARY, Tiny, make_tiny

RANKS = (1, 8, 16, 64)
COUNT = 6
FAMILIES = ("llama-mqa-tied-biased", "qwen2", "phi3", "gpt2", "gpt_neox", "mixtral")


@dataclass(frozen=True)
class Adapted:
    """A checkpoint and adapters of it."""

    tiny: Tiny
    folders: list[Path]


def ref(name: str, folder: Path) -> AdapterRef:
    return AdapterRef(name, str(folder), adapter_version(folder))


def prompt_of(length: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCABULARY, (length,), generator=generator).tolist()


def assert_as_peft(base: Path, folder: Path | None, prompt: list[int], found: tuple[list[int], torch.Tensor]) -> None:
    tokens, logits = found
    expected = peft_logits(base, folder, [*prompt, *tokens])[len(prompt) - 1 : -1]
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)


@pytest.fixture(scope="module", params=FAMILIES)
def adapted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Adapted:
    pytest.importorskip("peft")
    tiny = make_tiny(request.param, tmp_path_factory.mktemp(request.param))
    folder = tmp_path_factory.mktemp("adapters")
    folders = [save_adapter(tiny.path, folder / str(rank), seed=rank, rank=rank) for rank in RANKS]
    return Adapted(tiny, folders)


@pytest.mark.parametrize("compute", ["exact", "fast"])
def test_four_ranks_and_none_in_one_batch(adapted: Adapted, compute: str) -> None:
    runner = Runner(
        adapted.tiny.path, cpu_compute=compute, enable_lora=True, max_loras=4, max_lora_rank=128, lora_targets="experts"
    )
    refs: list[AdapterRef | None] = [ref(folder.name, folder) for folder in adapted.folders]
    prompts = [prompt_of(5 + 4 * place, seed=place) for place in range(len(refs) + 1)]
    found = runner.run(prompts, COUNT, [*refs, None])
    for folder, prompt, answer in zip([*adapted.folders, None], prompts, found, strict=True):
        assert_as_peft(adapted.tiny.path, folder, prompt, answer)


def test_latent_attention(tmp_path: Path) -> None:
    """All of its matrices but that which is moved from keys to queries."""
    pytest.importorskip("peft")
    tiny = make_tiny("deepseek_v2", tmp_path / "model")
    targets = ["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "o_proj"]
    folder = save_adapter(tiny.path, tmp_path / "adapter", seed=1, rank=8, target_modules=targets)
    runner = Runner(tiny.path, enable_lora=True, max_loras=2, max_lora_rank=16)
    prompt = prompt_of(11, seed=1)
    [found] = runner.run([prompt], COUNT, [ref("adapter", folder)])
    assert_as_peft(tiny.path, folder, prompt, found)
    refused = save_adapter(tiny.path, tmp_path / "refused", seed=1, rank=8, target_modules=["kv_b_proj"])
    with pytest.raises(CheckpointError, match="kv_b_proj"):
        describe_adapter(refused, read_model_facts(tiny.path).spec, AdapterLimits(16, frozenset({"layers"})))


SETTINGS: dict[str, dict[str, Any]] = {
    "rslora": {"use_rslora": True},
    "dora": {"use_dora": True},
    "patterns": {"rank_pattern": {"q_proj": 3, "model.layers.1.mlp.up_proj": 20}, "alpha_pattern": {"down_proj": 40}},
    "some": {"target_modules": ["q_proj", "v_proj"]},
    "ends": {"target_modules": ["embed_tokens", "lm_head", "k_proj"]},
    "dora-head": {"target_modules": ["lm_head", "o_proj"], "use_dora": True},
}


@pytest.fixture(scope="module")
def biased(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return make_tiny("llama-mqa-tied-biased", tmp_path_factory.mktemp("biased"))


@pytest.mark.parametrize("compute", ["exact", "fast"])
@pytest.mark.parametrize("kind", list(SETTINGS))
def test_every_kind_of_adapter(biased: Tiny, tmp_path: Path, kind: str, compute: str) -> None:
    pytest.importorskip("peft")
    folder = save_adapter(biased.path, tmp_path / "adapter", seed=5, rank=4, **SETTINGS[kind])
    runner = Runner(
        biased.path, cpu_compute=compute, enable_lora=True, max_loras=2, max_lora_rank=32, lora_targets="embedding,head"
    )
    prompts = [prompt_of(9, seed=1), prompt_of(12, seed=2)]
    found = runner.run(prompts, COUNT, [ref("a", folder), None])
    assert_as_peft(biased.path, folder, prompts[0], found[0])
    assert_as_peft(biased.path, None, prompts[1], found[1])


def test_prompt_logprobs_go_through_an_adapted_head(biased: Tiny, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    folder = save_adapter(biased.path, tmp_path / "adapter", seed=5, rank=4, target_modules=["lm_head"])
    runner = Runner(biased.path, cpu_compute="exact", enable_lora=True, lora_targets="head")
    prompt = prompt_of(9, seed=1)
    [found] = runner.run([prompt], 1, [ref("a", folder)], prompt_logprobs=1)
    assert_as_peft(biased.path, folder, prompt, found)


@pytest.mark.parametrize("stacked", [True, False])
def test_experts(tmp_path: Path, stacked: bool) -> None:
    """As peft saves them for transformers' stacked experts, and as adapters of experts one by one were saved."""
    pytest.importorskip("peft")
    tiny = make_tiny("mixtral", tmp_path / "model")
    folder = save_adapter(
        tiny.path,
        tmp_path / "adapter",
        seed=3,
        rank=5,
        target_modules=["q_proj"],
        target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"],
    )
    used = folder if stacked else one_by_one(folder, tmp_path / "apart")
    runner = Runner(tiny.path, enable_lora=True, lora_targets="experts", max_num_seqs=4)
    prompts = [prompt_of(9, seed=1), prompt_of(12, seed=2)]
    found = runner.run(prompts, COUNT, [ref("a", used), None])
    assert_as_peft(tiny.path, folder, prompts[0], found[0])
    assert_as_peft(tiny.path, None, prompts[1], found[1])


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_a_base_in_a_gguf_file(tmp_path: Path, kind: str) -> None:
    """Whose rotary rows are in another order there, and whose matrices may be packed: adapters are added to outputs."""
    pytest.importorskip("peft")
    model = tiny_model("llama", kind)
    model.save_pretrained(tmp_path / "model")
    packed = write_gguf(tmp_path / "model.gguf", "llama", model, kind)
    folder = save_adapter(tmp_path / "model", tmp_path / "adapter", seed=3, rank=5)
    runner = Runner(packed, cpu_compute="exact", enable_lora=True, max_loras=2)
    prompts = [[place * 7 % 48 for place in range(9)], [place * 5 % 48 for place in range(12)]]
    found = runner.run(prompts, COUNT, [ref("a", folder), None])
    assert_as_peft(tmp_path / "model", folder, prompts[0], found[0])
    assert_as_peft(tmp_path / "model", None, prompts[1], found[1])


def one_by_one(folder: Path, target: Path) -> Path:
    """The same adapter under the names of experts that are modules of their own."""
    from safetensors.torch import load_file

    from tests.lora.peft_folders import rewritten

    stored, tensors = load_file(folder / "adapter_model.safetensors"), {}
    for name, values in stored.items():
        if ".experts." not in name:
            tensors[name] = values
            continue
        if "lora_A" not in name:
            continue
        other = stored[name.replace("lora_A", "lora_B")]
        start = name.split(".mlp.experts")[0] + ".block_sparse_moe.experts"
        count, rank = 6, 5
        a, b = values.view(count, rank, -1), other.view(other.shape[0], rank, count)
        kinds = ("w2",) if values.shape[1] == 112 else ("w1", "w3")
        for expert in range(count):
            for kind, rows in zip(kinds, b[:, :, expert].chunk(len(kinds)), strict=True):
                tensors[f"{start}.{expert}.{kind}.lora_A.weight"] = a[expert].clone()
                tensors[f"{start}.{expert}.{kind}.lora_B.weight"] = rows.clone().contiguous()
    return rewritten(folder, target, tensors)


def test_a_registry_checks_what_it_is_given(biased: Tiny, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    folder = save_adapter(biased.path, tmp_path / "all" / "mine", seed=5, rank=4)
    spec = read_model_facts(str(biased.path)).spec
    registry = AdapterRegistry(spec, AdapterLimits(16, frozenset(TARGETS)), tmp_path / "all")
    assert registry.names() == ["mine"]
    found = registry.find("mine")
    assert found is not None
    assert Path(found.path) == folder.resolve()
    assert registry.find("../all/mine") is None
    assert registry.find("yours") is None
