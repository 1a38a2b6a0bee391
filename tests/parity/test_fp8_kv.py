"""KV in fp8 from storage to logits: on a CPU through the ops' definitions, which no setting asks for, and on a GPU."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from quire.config.resolve import resolve
from quire.config.resolved import Resolved
from tests.parity import runner as runner_module
from tests.parity.runner import Runner
from tests.parity.test_families import prompt_of
from tests.parity.tiny import make_tiny

COUNT = 24
FORMATS = ("float8_e4m3fn", "float8_e5m2")
TOLERANCE = {"float8_e4m3fn": 0.1, "float8_e5m2": 0.2}
"""Of logits whose deviation is 1, after four layers; numbers are rounded by up to a 16th and an 8th of themselves."""
Start = Callable[..., Runner]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny("llama", tmp_path_factory.mktemp("llama")).path


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Start:
    """A runner on the CPU whose KV is in a format that only GPUs are asked for."""

    def started(path: Path, stored: str, **settings: Any) -> Runner:
        def as_stored(*given: Any) -> Resolved:
            resolved = resolve(*given)
            return replace(resolved, kv=replace(resolved.kv, dtype=stored))

        monkeypatch.setattr(runner_module, "resolve", as_stored)
        return Runner(path, cpu_compute="exact", **settings)

    return started


def difference(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).square().mean().sqrt())


def with_scales(path: Path, folder: Path, key: float, value: float) -> Path:
    """The same checkpoint with scales of KV in all layers but the first."""
    for file in path.iterdir():
        if file.is_file() and file.suffix != ".safetensors":
            (folder / file.name).write_bytes(file.read_bytes())
    tensors = {name: tensor for file in path.glob("*.safetensors") for name, tensor in load_file(file).items()}
    for layer in (1, 2, 3):
        tensors[f"model.layers.{layer}.self_attn.k_scale"] = torch.tensor(key)
        tensors[f"model.layers.{layer}.self_attn.v_scale"] = torch.tensor([value])
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.mark.parametrize("stored", FORMATS)
def test_logits_are_close_to_those_of_float32(path: Path, start: Start, stored: str) -> None:
    prompt = prompt_of(40, seed=1)
    [(_, logits)] = start(path, stored).run([prompt], 1)
    [(_, wanted)] = start(path, "float32").run([prompt], 1)
    assert 0 < difference(logits, wanted) < TOLERANCE[stored]


@pytest.mark.parametrize("stored", FORMATS)
def test_latents_too(start: Start, tmp_path: Path, stored: str) -> None:
    """A layer's one scale is that of its keys. Rounding changes some tokens' experts."""
    tiny = make_tiny("deepseek_v2-lite", tmp_path).path
    (tmp_path / "scaled").mkdir()
    prompt = prompt_of(40, seed=1)
    [(_, logits)] = start(tiny, stored).run([prompt], 1)
    [(_, wanted)] = start(tiny, "float32").run([prompt], 1)
    [(_, scaled)] = start(with_scales(tiny, tmp_path / "scaled", 0.25, 1e-6), stored).run([prompt], 1)
    assert 0 < difference(logits, wanted) < 3 * TOLERANCE[stored]
    assert difference(scaled, wanted) < 3 * TOLERANCE[stored]


@pytest.mark.parametrize("stored", FORMATS)
def test_prefix_hits_and_swaps_change_nothing(path: Path, start: Start, stored: str) -> None:
    prompts = [prompt_of(20 + place, seed=10 + place) for place in range(4)]
    roomy = start(path, stored, max_model_len=64)
    wanted = [tokens for tokens, _ in roomy.run(prompts, COUNT)]
    assert [tokens for tokens, _ in roomy.run(prompts, COUNT)] == wanted
    assert roomy.scheduler.kv.stats.tokens_saved > 0
    crowded = start(path, stored, num_gpu_blocks_override=34, preemption_mode="swap", swap_space=0.01, max_model_len=64)
    assert [tokens for tokens, _ in crowded.run(prompts, COUNT)] == wanted
    assert crowded.scheduler.stats.preempted_swap > 0


def test_scales_of_the_checkpoint_keep_numbers_in_range(path: Path, start: Start, tmp_path: Path) -> None:
    """Powers of two change nothing but the range; a scale that is far too small saturates all numbers."""
    prompt = prompt_of(40, seed=1)
    (tmp_path / "fits").mkdir()
    (tmp_path / "saturates").mkdir()
    [(_, plain)] = start(path, FORMATS[0]).run([prompt], 1)
    [(_, scaled)] = start(with_scales(path, tmp_path / "fits", 0.125, 0.0625), FORMATS[0]).run([prompt], 1)
    [(_, saturated)] = start(with_scales(path, tmp_path / "saturates", 1e-6, 1e-6), FORMATS[0]).run([prompt], 1)
    assert difference(scaled, plain) < TOLERANCE[FORMATS[0]] / 4
    assert difference(saturated, plain) > 2 * TOLERANCE[FORMATS[0]]
    [(_, ignored)] = start(tmp_path / "saturates", "float32").run([prompt], 1)
    [(_, wanted)] = start(path, "float32").run([prompt], 1)
    assert difference(ignored, wanted) < 1e-5  # torch's GEMMs may sum in another order from run to run


@pytest.mark.gpu
@pytest.mark.parametrize("stored", ["fp8", "fp8_e5m2"])
def test_latents_on_a_gpu(start: Start, tmp_path: Path, stored: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = make_tiny("deepseek_v2-lite", tmp_path).path
    prompt = prompt_of(30, seed=5)
    named = {"fp8": FORMATS[0], "fp8_e5m2": FORMATS[1]}[stored]
    [(wanted, _)] = start(tiny, named).run([prompt], COUNT)
    monkeypatch.setattr(runner_module, "resolve", resolve)
    [(found, _)] = Runner(tiny, device="cuda", kv_cache_dtype=stored).run([prompt], COUNT)
    assert sum(a == b for a, b in zip(found, wanted, strict=True)) > COUNT // 2


@pytest.mark.gpu
@pytest.mark.parametrize("stored", ["fp8", "fp8_e5m2"])
def test_on_a_gpu(path: Path, start: Start, tmp_path: Path, stored: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens mostly agree with those of the definitions: kernels round queries and weights to float16."""
    prompts = [prompt_of(20 + place, seed=10 + place) for place in range(4)]
    named = {"fp8": FORMATS[0], "fp8_e5m2": FORMATS[1]}[stored]
    wanted = [tokens for tokens, _ in start(path, named, max_model_len=64).run(prompts, COUNT)]
    scaled = with_scales(path, tmp_path, 0.125, 0.0625)
    monkeypatch.setattr(runner_module, "resolve", resolve)

    def agree(folder: Path, **settings: Any) -> Runner:
        runner = Runner(folder, device="cuda", kv_cache_dtype=stored, max_model_len=64, **settings)
        for _ in range(2):
            found = [tokens for tokens, _ in runner.run(prompts, COUNT)]
            same = sum(
                a == b for one, other in zip(found, wanted, strict=True) for a, b in zip(one, other, strict=True)
            )
            assert same > COUNT * len(prompts) // 2
        return runner

    assert agree(path).scheduler.kv.stats.tokens_saved > 0
    agree(scaled)
    crowded = agree(path, num_gpu_blocks_override=34, preemption_mode="swap", swap_space=0.01)
    assert crowded.scheduler.stats.preempted_swap > 0
