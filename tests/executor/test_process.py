"""Two ranks of one model under everything that an engine does to a sequence, and what happens when one is lost."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from quire.core.errors import ConfigError
from quire.core.plan import StepPlan
from quire.executor.process import ProcessExecutor, RankLost, start_processes
from tests.executor.ranks import OtherRanks, RankRunner, running
from tests.models.quantized_folders import WEIGHTS_ALONE, WITH_ACTIVATIONS, write_folder
from tests.parity.test_families import prompt_of
from tests.parity.tiny import Tiny, make_tiny

COUNT = 16
PROMPTS = [prompt_of(length, seed=20 + length) for length in (2, 45, 9, 31, 17)]


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtherRanks]:
    ranks = OtherRanks(tmp_path_factory.mktemp("ranks"), 1)
    yield ranks
    ranks.close()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return make_tiny("qwen2-windows", tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def expected(tiny: Tiny) -> list[list[int]]:
    with running(tiny.path) as one:
        return one.run(PROMPTS, COUNT)


def test_chunks_in_a_mixed_batch(tiny: Tiny, others: OtherRanks, expected: list[list[int]]) -> None:
    settings = {"max_num_seqs": 5, "max_num_batched_tokens": 19}
    with running(tiny.path, others, tensor_parallel_size=2, **settings) as two:
        assert two.run(PROMPTS, COUNT) == expected


def test_prefix_hits(tiny: Tiny, others: OtherRanks, expected: list[list[int]]) -> None:
    with running(tiny.path, others, tensor_parallel_size=2) as two:
        two.run(PROMPTS, 1)
        assert two.run(PROMPTS, COUNT) == expected
        assert two.scheduler.kv.stats.tokens_saved > 60


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_after_preemption(others: OtherRanks, tmp_path: Path, mode: str) -> None:
    tiny = make_tiny("llama", tmp_path)
    prompts = [prompt_of(20 + place, seed=10 + place) for place in range(4)]
    with running(tiny.path) as one:
        expected = one.run(prompts, 32)
    settings = {"num_gpu_blocks_override": 34, "preemption_mode": mode, "swap_space": 0.01, "max_model_len": 64}
    with running(tiny.path, others, tensor_parallel_size=2, **settings) as two:
        assert two.run(prompts, 32) == expected
        stats = two.scheduler.stats
        assert (stats.preempted_swap if mode == "swap" else stats.preempted_recompute) > 0


def test_sampling_draws_the_same_tokens(tiny: Tiny, others: OtherRanks) -> None:
    asked = {"temperature": 0.8, "top_p": 0.9, "seed": 5, "repetition_penalty": 1.2}
    with running(tiny.path) as one:
        drawn = one.run(PROMPTS, COUNT, **asked)
    with running(tiny.path, others, tensor_parallel_size=2) as two:
        assert two.run(PROMPTS, COUNT, **asked) == drawn


def test_logprobs(tiny: Tiny, others: OtherRanks) -> None:
    def found(runner: RankRunner) -> list[float]:
        values: list[float] = []
        read = runner.scheduler.update

        def reading(result):  # type: ignore[no-untyped-def]
            values.extend(each.logprob for each in result.logprobs.values())
            for span in result.prompt_logprobs.values():
                values.extend(each.logprob for each in span.found)
            return read(result)

        runner.scheduler.update = reading  # type: ignore[method-assign]
        runner.run(PROMPTS[:2], 4, logprobs=3, prompt_logprobs=2)
        return values

    with running(tiny.path) as one, running(tiny.path, others, tensor_parallel_size=2) as two:
        alone, together = found(one), found(two)
    assert len(alone) == 2 * 4 + sum(len(prompt) - 1 for prompt in PROMPTS[:2])
    torch.testing.assert_close(torch.tensor(together), torch.tensor(alone), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ["gptq", "awq", "packed", "nf4", "llm.int8", "fp8 blocks"])
@pytest.mark.parametrize("held", ["expand", "keep"])
def test_quantized_weights(name: str, held: str, others: OtherRanks, tmp_path: Path) -> None:
    path = write_folder(tmp_path / name, (WEIGHTS_ALONE | WITH_ACTIVATIONS)[name])
    prompts = [[5, 6, 7, 8], [11, 12, 13]]
    with running(path, packed_weights=held) as one:
        expected = one.run(prompts, COUNT)
    with running(path, others, packed_weights=held, tensor_parallel_size=2) as two:
        assert two.run(prompts, COUNT) == expected
        assert max(two.weight_bytes) == pytest.approx(two.resolved.weight_bytes, rel=0.05)
