"""Experts spread over ranks: greedy tokens are those of one process, and each rank holds its experts alone."""

from pathlib import Path

import pytest

from quire.config.engine import EngineConfig
from quire.config.resolve import resolve
from quire.core.errors import ConfigError
from quire.models.loading.header import read_model_facts
from quire.worker.device import cpu_facts
from tests.executor.ranks import OtherRanks, running
from tests.executor.test_expert_copies import copied, copies_moved
from tests.executor.test_rank_families import COUNT, PROMPTS
from tests.parity.tiny import make_tiny
from tests.rarely import rarely


@pytest.mark.parametrize(
    ("name", "stages"), rarely([("qwen3_moe", 1), ("gpt_oss", 1), ("deepseek_v3", 1), ("qwen3_moe", 2)], every=2)
)
def test_two_ranks_have_half_of_the_experts_each(name: str, stages: int, others: OtherRanks, tmp_path: Path) -> None:
    tiny = make_tiny(name, tmp_path)
    with running(tiny.path) as one:
        expected = one.run(PROMPTS, COUNT)
    settings = {"tensor_parallel_size": 2, "pipeline_parallel_size": stages, "enable_expert_parallel": True}
    with running(tiny.path, others, **settings) as spread:
        assert spread.run(PROMPTS, COUNT) == expected
        assert max(spread.weight_bytes) == pytest.approx(spread.resolved.weight_bytes, rel=0.02)


def test_answers_stay_the_same_while_copies_move(others: OtherRanks, tmp_path: Path) -> None:
    tiny = make_tiny("qwen3_moe", tmp_path)
    with running(tiny.path) as one:
        expected = one.run(PROMPTS, COUNT)
    with copied(tiny.path, others) as spread:
        assert spread.resolved.spare_experts == 1
        assert max(spread.weight_bytes) == pytest.approx(spread.resolved.weight_bytes, rel=0.02)
        assert spread.executor.rank_balance() is None
        while copies_moved(spread) < 2:
            assert spread.run(PROMPTS, COUNT) == expected
        assert spread.run(PROMPTS, COUNT) == expected
        balance = spread.executor.rank_balance()
        assert balance is not None
        assert min(balance.imbalance, balance.without_copies) >= 1


def test_what_cannot_be_spread_is_refused(tmp_path: Path) -> None:
    dense, experts = make_tiny("llama", tmp_path / "llama"), make_tiny("mixtral", tmp_path / "mixtral")
    for tiny, settings, told in (
        (dense, {"tensor_parallel_size": 2}, "spreads experts, and .* has none"),
        (experts, {}, "--tensor-parallel-size, which is 1"),
    ):
        asked = EngineConfig.from_flat(model=str(tiny.path), enable_expert_parallel=True, **settings)
        with pytest.raises(ConfigError, match=told):
            resolve(asked, read_model_facts(str(tiny.path)), cpu_facts())
