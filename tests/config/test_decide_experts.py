"""Copies of experts: how many places there are, what they take, and where there can be none."""

from dataclasses import replace
from typing import Any

import pytest

from quire.config.devices import DEVICES
from quire.config.resolve import resolve
from quire.config.resolved import Resolved
from quire.core.errors import ConfigError
from tests.config.examples import LLAMA_3_8B, asked
from tests.config.test_decide_offload import A_SLOT, QWEN_30B

H100 = DEVICES["h100"]
SPREAD: dict[str, Any] = {"max_model_len": 4096, "tensor_parallel_size": 4, "enable_expert_parallel": True}


def spread(**settings: Any) -> Resolved:
    return resolve(asked(**{**SPREAD, **settings}), QWEN_30B, H100)


def test_every_rank_has_room_for_its_part() -> None:
    without, copies = spread(), spread(num_redundant_experts=8)
    assert (without.spare_experts, without.eplb_step_interval) == (0, 0)
    assert (copies.spare_experts, copies.eplb_step_interval) == (2, 3000)
    assert copies.weight_bytes == without.weight_bytes + 2 * A_SLOT
    assert copies.kv.num_blocks < without.kv.num_blocks
    [choice] = [each for each in copies.choices if each.name == "num_redundant_experts"]
    assert choice.value == "2 a rank"


def test_how_often_they_move() -> None:
    assert spread(num_redundant_experts=4, eplb_step_interval=1).eplb_step_interval == 1
    with pytest.raises(ConfigError, match="eplb-step-interval is 0, but it must be 1 or more"):
        asked(**SPREAD, num_redundant_experts=4, eplb_step_interval=0)
    with pytest.raises(ConfigError, match="--eplb-step-interval is 100, but there are no copies"):
        spread(eplb_step_interval=100)


def test_as_many_as_there_are_other_experts() -> None:
    assert spread(num_redundant_experts=4 * 96).spare_experts == 96
    with pytest.raises(ConfigError, match="is 388, but with 384 every one of 4 ranks has each of 128 experts"):
        spread(num_redundant_experts=388)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"num_redundant_experts": 6}, "is 6, which --tensor-parallel-size 4 does not divide.* use 4 or 8"),
        ({"num_redundant_experts": 4, "enable_expert_parallel": False}, "give --enable-expert-parallel too"),
        ({"num_redundant_experts": 4, "enable_expert_parallel": False, "tensor_parallel_size": 1}, "whole experts"),
    ],
)
def test_what_cannot_be(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        spread(**settings)


def test_fewer_than_none() -> None:
    with pytest.raises(ConfigError, match="num-redundant-experts is -4, but it must be 0 or more"):
        asked(**SPREAD, num_redundant_experts=-4)


def test_a_model_without_experts_has_none_to_copy() -> None:
    with pytest.raises(ConfigError, match="Meta-Llama-3-8B has none"):
        resolve(asked(**SPREAD, num_redundant_experts=4), LLAMA_3_8B, H100)


def test_experts_in_different_formats_cannot_take_each_others_places() -> None:
    odd = QWEN_30B.spec.layers[3].mlp.down.parts[5].weight_name
    for kind in ("float32", "Q4_0"):
        mixed = replace(QWEN_30B, kinds={odd: kind})
        resolve(asked(**SPREAD), mixed, H100)
        if kind == "float32":  # which is bfloat16 once it is loaded
            assert resolve(asked(**SPREAD, num_redundant_experts=4), mixed, H100).spare_experts == 1
            continue
        with pytest.raises(ConfigError, match=r"experts.0.down_proj and .*experts.5.down_proj are .*numbers and Q4_0"):
            resolve(asked(**SPREAD, num_redundant_experts=4), mixed, H100)
