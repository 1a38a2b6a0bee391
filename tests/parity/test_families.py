"""Every family against `transformers`: logits within 1e-4 and the same greedy tokens, however the work is cut up."""

import pytest
import torch

from tests.parity.runner import Runner
from tests.parity.tiny import CASES, VOCABULARY, Tiny, make_tiny
from tests.rarely import rarely

COUNT = 32


@pytest.fixture(scope="module", params=list(CASES))
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return make_tiny(request.param, tmp_path_factory.mktemp(request.param))


in_the_core_mostly = pytest.mark.parametrize("compute", rarely(["fast", "exact"], every=2), indirect=True)
"""Which blocks a sequence has, and when, is the same for both."""


def a_third_of_families(first: int) -> pytest.MarkDecorator:
    """Beside whole prompts and chunks, each family runs one of three other ways normally, and all with --slow."""
    return pytest.mark.parametrize("tiny", rarely(CASES, every=3, first=first), indirect=True, scope="module")


@pytest.fixture(params=["exact", "fast"])
def compute(request: pytest.FixtureRequest) -> str:
    """By torch's operations, and by the native core of CPUs where it is installed."""
    return str(request.param)


def prompt_of(length: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCABULARY, (length,), generator=generator).tolist()


def assert_equal(found: tuple[list[int], torch.Tensor], expected: tuple[list[int], torch.Tensor]) -> None:
    assert found[0] == expected[0]
    torch.testing.assert_close(found[1], expected[1], atol=1e-4, rtol=0)


def test_a_whole_prompt(tiny: Tiny, compute: str) -> None:
    runner = Runner(tiny.path, cpu_compute=compute)
    for length in (1, 23, 70):  # the last is beyond the length where dynamic and longrope angles change
        prompt = prompt_of(length, seed=length)
        [found] = runner.run([prompt], COUNT)
        assert_equal(found, tiny.greedy(prompt, COUNT))


def test_chunks_of_seven(tiny: Tiny, compute: str) -> None:
    prompt = prompt_of(40, seed=1)
    runner = Runner(tiny.path, cpu_compute=compute, max_num_seqs=7, max_num_batched_tokens=7)
    [found] = runner.run([prompt], COUNT)
    assert_equal(found, tiny.greedy(prompt, COUNT))


@in_the_core_mostly
@a_third_of_families(0)
def test_prefix_hits(tiny: Tiny, compute: str) -> None:
    runner = Runner(tiny.path, cpu_compute=compute)
    head = prompt_of(30, seed=2)
    runner.run([head], 4)
    for tail in ([], prompt_of(1, seed=3), prompt_of(9, seed=4), prompt_of(40, seed=5)):
        prompt = head + tail
        [found] = runner.run([prompt], COUNT)
        assert_equal(found, tiny.greedy(prompt, COUNT))
    assert runner.scheduler.kv.stats.tokens_saved >= 3 * 29  # the last may have other angles, and then shares nothing


@in_the_core_mostly
@a_third_of_families(1)
@pytest.mark.parametrize("mode", rarely(["recompute", "swap"], every=2))
def test_after_preemption(tiny: Tiny, compute: str, mode: str) -> None:
    prompts = [prompt_of(20 + place, seed=10 + place) for place in range(4)]
    groups = len(Runner(tiny.path, cpu_compute=compute).scheduler.kv.groups)
    runner = Runner(
        tiny.path,
        cpu_compute=compute,
        num_gpu_blocks_override=34 * groups,
        preemption_mode=mode,
        swap_space=0.01,
        max_model_len=64,
    )
    results = runner.run(prompts, COUNT)
    stats = runner.scheduler.stats
    if all(group.window is None for group in runner.scheduler.kv.groups):
        assert (stats.preempted_swap if mode == "swap" else stats.preempted_recompute) > 0
    for prompt, found in zip(prompts, results, strict=True):
        assert_equal(found, tiny.greedy(prompt, COUNT))


@in_the_core_mostly
@a_third_of_families(2)
def test_in_a_mixed_batch(tiny: Tiny, compute: str) -> None:
    prompts = [prompt_of(length, seed=20 + length) for length in (2, 45, 9, 31, 17)]
    runner = Runner(tiny.path, cpu_compute=compute, max_num_seqs=5, max_num_batched_tokens=19)
    for prompt, found in zip(prompts, runner.run(prompts, COUNT), strict=True):
        assert_equal(found, tiny.greedy(prompt, COUNT))
