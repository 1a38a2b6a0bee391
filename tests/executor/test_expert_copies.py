"""Copies of experts of other families, layouts and formats: greedy tokens stay those of one process."""

from pathlib import Path
from typing import Any

import pytest

from tests.executor.ranks import OtherRanks, RankRunner, running
from tests.executor.test_rank_families import COUNT, PROMPTS
from tests.models.loading.converted import tiny_model, write_gguf
from tests.parity.tiny import make_tiny

ROUNDS = 4


def copied(path: Path, others: OtherRanks, **settings: Any) -> Any:
    """An engine whose copies follow the load of two steps, unless settings say otherwise."""
    ranks = settings.pop("tensor_parallel_size", 2)
    settings = {"eplb_step_interval": 2, **settings}
    return running(
        path,
        others,
        tensor_parallel_size=ranks,
        enable_expert_parallel=True,
        num_redundant_experts=ranks,
        **settings,
    )


def copies_moved(runner: RankRunner) -> int:
    balance = runner.executor.rank_balance()
    return 0 if balance is None else balance.copies_moved


def expected_of(path: Path) -> list[list[int]]:
    with running(path) as one:
        return one.run(PROMPTS, COUNT)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "ranks", "stages"),
    [("mixtral", 2, 1), ("deepseek_v3", 2, 1), ("gpt_oss", 2, 1), ("qwen3_moe", 2, 2), ("deepseek_v3", 4, 1)],
)
def test_other_families_and_layouts(name: str, ranks: int, stages: int, others: OtherRanks, tmp_path: Path) -> None:
    tiny = make_tiny(name, tmp_path)
    expected = expected_of(tiny.path)
    settings = {"tensor_parallel_size": ranks, "pipeline_parallel_size": stages}
    with copied(tiny.path, others, **settings) as spread:
        assert max(spread.weight_bytes) == pytest.approx(spread.resolved.weight_bytes, rel=0.02)
        for _ in range(ROUNDS):
            assert spread.run(PROMPTS, COUNT) == expected
        assert copies_moved(spread) > 0


@pytest.mark.slow
def test_packed_experts(others: OtherRanks, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", "qwen3moe", tiny_model("qwen3moe", "Q8_0"), "Q8_0")
    prompts = [[token % 48 for token in prompt] for prompt in PROMPTS]  # its vocabulary
    with running(path, packed_weights="keep") as one:
        expected = one.run(prompts, COUNT)
    with copied(path, others, packed_weights="keep") as spread:
        for _ in range(ROUNDS):
            assert spread.run(prompts, COUNT) == expected
        assert copies_moved(spread) > 0


@pytest.mark.slow
def test_copies_stay_while_the_engine_sleeps(others: OtherRanks, tmp_path: Path) -> None:
    tiny = make_tiny("qwen3_moe", tmp_path)
    expected = expected_of(tiny.path)
    with copied(tiny.path, others) as spread:
        for _ in range(ROUNDS):
            assert spread.run(PROMPTS, COUNT) == expected
        spread.loop.sleep(1)
        spread.loop.wake_up()
        assert spread.run(PROMPTS, COUNT) == expected


@pytest.mark.slow
def test_a_load_that_stays_becomes_even(others: OtherRanks, tmp_path: Path) -> None:
    """Once prompts are cached, every round has the same load: after a look at one, copies fit the next."""
    tiny = make_tiny("qwen3_moe", tmp_path)
    with copied(tiny.path, others, tensor_parallel_size=4, eplb_step_interval=3 * COUNT) as spread:
        for _ in range(12):
            spread.run(PROMPTS, COUNT)
        balance = spread.executor.rank_balance()
        assert balance is not None
        assert balance.copies_moved > 0
        assert 1 <= balance.imbalance < 0.95 * balance.without_copies
