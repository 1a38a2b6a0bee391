"""KV in int8 on a CPU: close to float32, and the same whatever a sequence is computed with or goes through."""

from pathlib import Path

import pytest
import torch

from tests.ops.cpu.machines import needs_core
from tests.parity.runner import Runner
from tests.parity.test_families import prompt_of
from tests.parity.tiny import make_tiny

pytestmark = needs_core

COUNT = 24
TOLERANCE = 0.1
"""Of logits of order 1 after four layers; a step of int8 is a 127th of a vector's largest number."""
FAMILIES = ("llama", "mistral", "gpt2", "qwen3")


@pytest.fixture(scope="module", params=FAMILIES)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(request.param, tmp_path_factory.mktemp(request.param)).path


def runner(path: Path, **settings: object) -> Runner:
    return Runner(path, **{"kv_cache_dtype": "int8", **settings})


def equal(found: list[tuple[list[int], torch.Tensor]], wanted: list[tuple[list[int], torch.Tensor]]) -> None:
    for (tokens, logits), (wanted_tokens, wanted_logits) in zip(found, wanted, strict=True):
        assert tokens == wanted_tokens
        assert torch.equal(logits, wanted_logits)


@pytest.mark.parametrize("compute", ["fast", "exact"])
def test_logits_are_close_to_those_of_float32(path: Path, compute: str) -> None:
    prompt = prompt_of(40, seed=1)
    [(tokens, logits)] = runner(path, cpu_compute=compute).run([prompt], 1)
    [(wanted_tokens, wanted)] = runner(path, cpu_compute=compute, kv_cache_dtype="float32").run([prompt], 1)
    difference = (logits - wanted).abs().max()
    assert 0 < difference < TOLERANCE * wanted.std().clamp(min=1)
    assert tokens == wanted_tokens or wanted[0].topk(2).values.diff().abs() < 2 * difference


def test_alone_and_in_any_batch(path: Path) -> None:
    prompts = [prompt_of(length, seed=20 + length) for length in (2, 45, 9, 31)]
    together = runner(path, max_num_seqs=4, max_num_batched_tokens=19).run(prompts, COUNT)
    equal(together, [runner(path).run([prompt], COUNT)[0] for prompt in prompts])


def test_after_a_prefix_hit(path: Path) -> None:
    engine, prompt = runner(path), prompt_of(30, seed=2)
    first = engine.run([prompt], COUNT)
    equal(engine.run([prompt], COUNT), first)
    assert engine.scheduler.kv.stats.tokens_saved > 0


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_after_preemption(path: Path, mode: str) -> None:
    prompts = [prompt_of(20 + place, seed=10 + place) for place in range(4)]
    groups = len(runner(path).scheduler.kv.groups)
    crowded = runner(path, num_gpu_blocks_override=34 * groups, preemption_mode=mode, swap_space=0.01, max_model_len=64)
    found = crowded.run(prompts, COUNT)
    stats = crowded.scheduler.stats
    if all(group.window is None for group in crowded.scheduler.kv.groups):
        assert (stats.preempted_swap if mode == "swap" else stats.preempted_recompute) > 0
    equal(found, runner(path, max_model_len=64).run(prompts, COUNT))
