"""Stages of one model under everything that an engine does to a sequence: greedy tokens are those of one process."""

from pathlib import Path
from typing import Any

import pytest
import torch

from quire.config.engine import EngineConfig
from quire.config.resolve import resolve
from quire.core.errors import ConfigError
from quire.core.plan import StepPlan
from quire.models.loading.header import read_model_facts
from quire.worker.device import cpu_facts
from tests.executor.ranks import OtherRanks, logprobs_found, running
from tests.parity.test_families import prompt_of
from tests.parity.tiny import Tiny, make_tiny

COUNT = 16
PROMPTS = [prompt_of(length, seed=20 + length) for length in (2, 45, 9, 31, 17)]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return make_tiny("qwen2-windows", tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def expected(tiny: Tiny) -> list[list[int]]:
    with running(tiny.path) as one:
        return one.run(PROMPTS, COUNT)


def test_two_stages_are_one_model(tiny: Tiny, others: OtherRanks, expected: list[list[int]]) -> None:
    with running(tiny.path, others, pipeline_parallel_size=2) as two:
        assert two.run(PROMPTS, COUNT) == expected


def test_chunks_in_a_mixed_batch(tiny: Tiny, others: OtherRanks, expected: list[list[int]]) -> None:
    settings = {"max_num_seqs": 5, "max_num_batched_tokens": 19}
    with running(tiny.path, others, pipeline_parallel_size=2, tensor_parallel_size=2, **settings) as four:
        assert four.run(PROMPTS, COUNT) == expected


def test_prefix_hits(tiny: Tiny, others: OtherRanks, expected: list[list[int]]) -> None:
    with running(tiny.path, others, pipeline_parallel_size=2) as two:
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
    with running(tiny.path, others, pipeline_parallel_size=2, **settings) as two:
        assert two.run(prompts, 32) == expected
        stats = two.scheduler.stats
        assert (stats.preempted_swap if mode == "swap" else stats.preempted_recompute) > 0


def test_rows_change_hands_while_tokens_are_on_their_way(tiny: Tiny, others: OtherRanks) -> None:
    """Answers of one to three tokens end while steps behind them run, and other requests take their rows."""
    prompts = [prompt_of(3 + place % 7, seed=place) for place in range(24)]
    settings = {"max_num_seqs": 3, "max_num_batched_tokens": 16}
    for count in (1, 3):
        with running(tiny.path) as one:
            alone = one.run(prompts, count)
        with running(tiny.path, others, pipeline_parallel_size=2, **settings) as two:
            assert two.run(prompts, count) == alone


def test_sampling_draws_the_same_tokens(tiny: Tiny, others: OtherRanks) -> None:
    asked = {"temperature": 0.8, "top_p": 0.9, "seed": 5, "repetition_penalty": 1.2}
    with running(tiny.path) as one:
        drawn = one.run(PROMPTS, COUNT, **asked)
    with running(tiny.path, others, pipeline_parallel_size=2) as two:
        assert two.run(PROMPTS, COUNT, **asked) == drawn


def test_logprobs(tiny: Tiny, others: OtherRanks) -> None:
    with running(tiny.path) as one, running(tiny.path, others, pipeline_parallel_size=2) as two:
        alone, together = logprobs_found(one, PROMPTS[:2]), logprobs_found(two, PROMPTS[:2])
    assert len(alone) == 2 * 4 + sum(len(prompt) - 1 for prompt in PROMPTS[:2])
    torch.testing.assert_close(torch.tensor(together), torch.tensor(alone), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["deepseek_v3", "qwen3_moe"])
def test_experts_and_latents(name: str, others: OtherRanks, tmp_path: Path) -> None:
    tiny = make_tiny(name, tmp_path)
    with running(tiny.path) as one:
        expected = one.run(PROMPTS, COUNT)
    with running(tiny.path, others, pipeline_parallel_size=2) as two:
        assert two.run(PROMPTS, COUNT) == expected


def test_steps_in_flight_are_one_more_than_stages(tiny: Tiny, others: OtherRanks) -> None:
    most = 0
    with running(tiny.path, others, pipeline_parallel_size=2) as two:
        assert two.executor.max_in_flight == 3
        schedule = two.scheduler.schedule

        def counting(now: float) -> StepPlan:
            nonlocal most
            most = max(most, len(two.scheduler._flights))
            return schedule(now)

        two.scheduler.schedule = counting  # type: ignore[method-assign]
        two.run(PROMPTS, COUNT)
    assert most == 2  # and the one that is being planned


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"enable_lora": True, "lora_targets": "layers,head"},
            "--lora-targets has head, whose adapters are for models on one device so far, but --pipeline-parallel-size",
        ),
        ({"compile": True}, "--compile is for models on one device, but --pipeline-parallel-size is 2"),
        (
            {"offload_gb": 1.0},
            "--pipeline-parallel-size is 2, but --offload-gb, which is 1, is for models in",
        ),
        (
            {"kv_transfer": True},
            r"--pipeline-parallel-size is 2, but KV that engines exchange \(--kv-transfer, --role, --prefill-engines\)",
        ),
        ({"pipeline_parallel_size": 9}, "--pipeline-parallel-size is 9, but the model has only"),
    ],
)
def test_what_does_not_go_with_stages_is_refused(tiny: Tiny, settings: dict[str, Any], told: str) -> None:
    asked = EngineConfig.from_flat(model=str(tiny.path), **{"pipeline_parallel_size": 2, **settings})
    with pytest.raises(ConfigError, match=told):
        resolve(asked, read_model_facts(str(tiny.path)), cpu_facts())
