"""Ranks that attend each to sequences of their own: what they hold, what that leaves for KV, and what is refused."""

from typing import Any

import pytest

from quire.config.devices import DEVICES
from quire.config.engine import EngineConfig
from quire.config.remedies import find_remedies
from quire.config.resolve import resolve
from quire.config.resolved import Resolved
from quire.core.errors import ConfigError
from quire.models.loading.header import config_facts
from tests.config.examples import LLAMA_3_8B, asked
from tests.config.test_decide_offload import A_SLOT, CONFIG, QWEN_30B

H100 = DEVICES["h100"]
SPREAD: dict[str, Any] = {"max_model_len": 4096, "data_parallel_size": 4, "enable_expert_parallel": True}
CUT_DRAFTS = '{"method": "draft_model", "model": "small", "draft_tensor_parallel_size": 4}'


def spread(**settings: Any) -> Resolved:
    return resolve(asked(**{**SPREAD, **settings}), QWEN_30B, H100)


def test_experts_alone_are_spread_and_each_rank_has_kv() -> None:
    alone = resolve(asked(max_model_len=4096), QWEN_30B, H100)
    four = spread()
    assert (four.attention_ranks, four.num_ranks, four.expert_ranks, four.tensor_parallel_size) == (4, 4, 4, 1)
    assert four.weight_bytes == alone.weight_bytes - 96 * A_SLOT  # of 128 experts in every layer
    assert four.kv.bytes_per_token == alone.kv.bytes_per_token
    assert four.kv.num_blocks > 2 * alone.kv.num_blocks
    # a token of KV is on one rank, where tensor parallel ranks have a quarter of it each
    cut = spread(data_parallel_size=1, tensor_parallel_size=4)
    assert 4 * four.kv.bytes_per_token * four.kv.num_blocks == pytest.approx(
        4 * cut.kv.bytes_per_token * cut.kv.num_blocks, rel=0.25
    )
    [choice] = [each for each in four.choices if each.name == "attention_ranks"]
    assert choice.value == "4"


def test_one_engine_has_them_all() -> None:
    parallel = EngineConfig.from_flat(data_parallel_size=2, enable_expert_parallel=True)
    assert parallel.server.replicas == 1
    assert parallel.parallel.num_ranks == 2
    both = EngineConfig.from_flat(data_parallel_size=2, enable_expert_parallel=True, replicas=3)
    assert (both.server.replicas, both.parallel.num_ranks) == (3, 2)
    copies = EngineConfig.from_flat(data_parallel_size=2)
    assert (copies.server.replicas, copies.parallel.num_ranks) == (2, 1)


def test_experts_compute_tokens_of_all_ranks() -> None:
    """So that a larger step leaves less for KV, for each rank's tokens are on all."""
    small, large = spread(max_num_batched_tokens=1024), spread(max_num_batched_tokens=8192)
    assert large.kv.num_blocks < small.kv.num_blocks


def test_copies_are_spread_over_all() -> None:
    assert spread(num_redundant_experts=8).spare_experts == 2
    with pytest.raises(ConfigError, match="is 6, which --data-parallel-size 4 does not divide"):
        spread(num_redundant_experts=6)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"tensor_parallel_size": 2}, "attend by itself .* --tensor-parallel-size is 2; .* give --replicas 4"),
        ({"pipeline_parallel_size": 2}, "--pipeline-parallel-size is 2; leave that out"),
        ({"enable_lora": True, "lora_targets": "layers,experts"}, "--lora-targets has experts"),
        (
            {"speculative_config": CUT_DRAFTS},
            "draft_tensor_parallel_size 4, but --tensor-parallel-size is 1, .* give 1",
        ),
        ({"kv_disk_path": "/somewhere"}, "--kv-disk-path is /somewhere"),
        ({"kv_transfer": True}, "KV is to be exchanged between engines"),
        ({"prefill_engines": 1, "decode_engines": 1}, "KV is to be exchanged between engines"),
        ({"data_parallel_size": 256}, "128 experts over --data-parallel-size 256 ranks, of which some would have none"),
        ({"offload_gb": 8.0}, "--offload-gb is 8, but --enable-expert-parallel"),
        ({"batch_invariant": True}, "--batch-invariant"),
        ({"compile": True}, "--compile"),
    ],
)
def test_what_does_not_go_together(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        spread(**settings)


def test_models_without_experts_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"spreads experts, and .* has none"):
        resolve(asked(data_parallel_size=2, enable_expert_parallel=True), LLAMA_3_8B, H100)


def test_advice_keeps_to_the_layout() -> None:
    """A model that does not fit two such ranks is advised to use more of them."""
    large = config_facts("large", CONFIG | {"num_hidden_layers": 8, "moe_intermediate_size": 60 * 768})
    two = asked(**{**SPREAD, "data_parallel_size": 2, "max_num_batched_tokens": 512})
    remedies = find_remedies(two, large, DEVICES["h200"], None)
    assert any("--data-parallel-size" in remedy.change for remedy in remedies)
    assert not any("--tensor-parallel-size" in remedy.change for remedy in remedies)
