"""Every family on two ranks: greedy tokens are those of one, and each rank holds its share of the weights."""

from pathlib import Path

import pytest

from quire.config.holding import Holding
from quire.config.memory import weights_on_device
from quire.config.parallel import ParallelConfig
from tests.executor.ranks import OtherRanks, RankRunner, running
from tests.parity.test_families import prompt_of
from tests.parity.tiny import CASES, make_tiny
from tests.rarely import rarely

COUNT = 16
PROMPTS = [prompt_of(length, seed=length) for length in (1, 23, 70)]
"""The last is beyond the length where dynamic and longrope angles change."""


def check_planned(runner: RankRunner) -> None:
    """The fullest rank holds what was planned; angles are no weights, and tiny models have many of them."""
    ranks = runner.resolved.tensor_parallel_size
    planned = weights_on_device(runner.facts, Holding("float32"), ParallelConfig(tensor_parallel_size=ranks))
    assert planned == runner.resolved.weight_bytes
    assert max(runner.weight_bytes) == pytest.approx(planned, rel=0.02)
    assert sum(runner.weight_bytes) / ranks == pytest.approx(planned, rel=0.05)


@pytest.mark.parametrize("name", rarely(CASES, every=5))
def test_two_ranks_are_one(name: str, others: OtherRanks, tmp_path: Path) -> None:
    tiny = make_tiny(name, tmp_path)
    with running(tiny.path) as one:
        expected = one.run(PROMPTS, COUNT)
    with running(tiny.path, others, tensor_parallel_size=2) as two:
        assert two.run(PROMPTS, COUNT) == expected
        check_planned(two)


@pytest.mark.parametrize("name", ["llama", "falcon-new", "olmo2", "qwen2_moe"])
def test_more_ranks_than_kv_heads(name: str, others: OtherRanks, tmp_path: Path) -> None:
    tiny = make_tiny(name, tmp_path)
    with running(tiny.path) as one:
        expected = one.run(PROMPTS, COUNT)
    with running(tiny.path, others, tensor_parallel_size=4) as four:
        assert four.run(PROMPTS, COUNT) == expected
        check_planned(four)
