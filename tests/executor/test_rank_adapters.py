"""LoRA adapters of models that are spread over ranks: answers are those of one device, whatever the adapter's rank."""

import socket
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from benchmarks.random_adapters import write_adapters
from quire.core.adapter import AdapterRef
from quire.core.errors import CheckpointError
from quire.executor.other_rank import OtherRank, RankLost
from quire.lora.describe import adapter_version
from tests.executor.ranks import OtherRanks, running
from tests.lora.peft_folders import save_adapter
from tests.parity.test_families import prompt_of
from tests.parity.tiny import make_tiny

COUNT = 12
PROMPTS = [prompt_of(length, seed=length) for length in (1, 23, 40, 9, 30)]


def adapters_for(path: Path, folder: Path) -> list[AdapterRef | None]:
    """Of several ranks, each of which changes answers; and none."""
    folders = write_adapters(str(path), folder, [1, 16, 40], spread=0.5)
    return [None, *(AdapterRef(each.name, str(each), adapter_version(each)) for each in folders)]


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("llama", {"tensor_parallel_size": 2}),
        ("llama", {"tensor_parallel_size": 4}),  # more ranks than heads of keys
        ("phi3", {"tensor_parallel_size": 2}),  # q, k and v in one tensor
        ("qwen3_moe", {"tensor_parallel_size": 2}),
        ("deepseek_v2-lite", {"tensor_parallel_size": 2}),
        pytest.param("qwen3_moe", {"data_parallel_size": 2, "enable_expert_parallel": True}, marks=pytest.mark.slow),
        pytest.param("deepseek_v3", {"data_parallel_size": 2, "enable_expert_parallel": True}, marks=pytest.mark.slow),
        ("llama", {"pipeline_parallel_size": 2}),
        ("qwen2", {"pipeline_parallel_size": 2, "tensor_parallel_size": 2}),
    ],
)
def test_answers_are_those_of_one_device(name: str, layout: dict[str, Any], others: OtherRanks, tmp_path: Path) -> None:
    path = make_tiny(name, tmp_path / "model").path
    adapters = adapters_for(path, tmp_path / "adapters")
    settings: dict[str, Any] = {"enable_lora": True, "max_lora_rank": 40, "max_loras": 4}
    with running(path, **settings) as one:
        expected = one.run(PROMPTS, COUNT, adapters)
        assert expected != one.run(PROMPTS, COUNT), "adapters change nothing here"
    with running(path, others, **settings, **layout) as spread:
        assert spread.run(PROMPTS, COUNT, adapters) == expected


def test_stacked_experts_are_cut_too(others: OtherRanks, tmp_path: Path) -> None:
    path = make_tiny("mixtral", tmp_path / "model").path
    folder = save_adapter(
        path,
        tmp_path / "adapter",
        seed=3,
        rank=4,
        target_modules=["q_proj", "o_proj"],
        target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"],
    )
    adapters = [AdapterRef("experts", str(folder), adapter_version(folder))]
    settings: dict[str, Any] = {"enable_lora": True, "lora_targets": "layers,experts"}
    with running(path, **settings) as one:
        expected = one.run(PROMPTS, COUNT, adapters)
        assert expected != one.run(PROMPTS, COUNT)
    with running(path, others, tensor_parallel_size=2, **settings) as two:
        assert two.run(PROMPTS, COUNT, adapters) == expected


def test_what_ranks_cannot_use_is_refused_and_harms_nobody(others: OtherRanks, tmp_path: Path) -> None:
    path = make_tiny("llama", tmp_path / "model").path
    [fine] = write_adapters(str(path), tmp_path / "adapters", [8])
    weighed = save_adapter(path, tmp_path / "dora", seed=1, rank=4, use_dora=True)
    fine_ref, weighed_ref = (AdapterRef(each.name, str(each), adapter_version(each)) for each in (fine, weighed))
    with running(path, others, tensor_parallel_size=2, enable_lora=True) as two:
        expected = two.run(PROMPTS, COUNT, [fine_ref])
        for ref, told in ((weighed_ref, "DoRA"), (structs.replace(fine_ref, version="older"), "have changed")):
            fetched = two.executor.fetch_adapter(ref)
            assert isinstance(fetched.exception(timeout=60), CheckpointError)
            with pytest.raises(CheckpointError, match=told):
                fetched.result()
        assert two.run(PROMPTS, COUNT, [fine_ref]) == expected


def test_a_lost_rank_keeps_nobody_waiting() -> None:
    """Neither errands that it was given, nor those that come when it is gone."""
    here, there = socket.socketpair()
    rank = Gone(1, here, timeout=30.0)
    rank.listen()
    before = rank.expect(1)
    there.close()
    with pytest.raises(RankLost, match="rank 1"):
        before.result(timeout=10)
    with pytest.raises(RankLost, match="rank 1"):
        rank.expect(2).result(timeout=10)
    rank.hang_up()


class Gone(OtherRank):
    place = "nowhere"

    def kill(self) -> None: ...

    def close(self) -> None: ...

    def _exit(self) -> str:
        return "it is gone"
