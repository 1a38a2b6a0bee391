"""The cost model against what was measured on an H200 (docs/performance.md), and its parts against arithmetic."""

from dataclasses import replace

import pytest

from quire.config.devices import DEVICES
from quire.config.engine import EngineConfig
from quire.config.links import INFINIBAND_NDR, NVLINK_4
from quire.config.resolve import resolve
from quire.models.loading.header import config_facts
from quire.simulation.cost import CostModel, ModelWork, StepWork
from quire.simulation.expert_work import ExpertWork
from quire.simulation.shapes import SHAPES
from tests.config.examples import LLAMA_3_8B, TINY, TINY_CONFIG, with_windows
from tests.simulation.setups import DEVICE, MODEL, make_setup

H200 = replace(DEVICES["h200"], step_overhead=0.0)


def h200_cost() -> CostModel:
    model = SHAPES["llama-8b"]
    return CostModel(ModelWork.of(model), H200, resolve(EngineConfig.from_flat(model="llama-8b"), model, H200))


@pytest.mark.parametrize(
    ("batch", "measured_ms"), [(1, 4.00), (8, 4.03), (32, 4.17), (64, 4.31), (128, 4.75), (256, 7.02)]
)
def test_weights_alone(batch: int, measured_ms: float) -> None:
    modelled = 1e3 * h200_cost().seconds(StepWork(num_tokens=batch))
    assert 0.7 * measured_ms <= modelled <= 1.2 * measured_ms


def test_single_stream_is_near_the_cards_limit() -> None:
    rate = h200_cost().tokens_per_second(batch=1, context=256)
    assert 230 <= rate <= 290  # 253 measured with cuBLAS, 286 by bytes


def test_prefill_is_near_the_cards_limit() -> None:
    prompt = StepWork(num_tokens=2048, pairs=2048 * 2049 // 2)
    rate = 2048 / h200_cost().seconds(prompt)
    assert 43_000 <= rate <= 55_000  # 52,000 is the limit, vLLM reached 43,100


def test_parts_add_up() -> None:
    resolved = make_setup().resolved
    cost = CostModel(MODEL, DEVICE, resolved)
    bytes_read = 2_000_000 + (100 + 1) * resolved.kv.bytes_per_token
    assert cost.seconds(StepWork(num_tokens=1, context=100)) == pytest.approx(1e-3 + bytes_read / 1e9)
    operations = 64_000 * 2 * 1_000_000 + 10**9 * 4 * 2 * 4 * 16
    assert cost.seconds(StepWork(num_tokens=64_000, pairs=10**9)) == pytest.approx(1e-3 + operations / 1e12)
    moved = 3 * resolved.kv.block_bytes / 1e8 + 2 * 5 * resolved.kv.block_bytes / 1e9
    assert cost.seconds(StepWork(copied_blocks=5, swapped_blocks=3)) == pytest.approx(moved)


def test_tensor_parallel_shares_the_operations() -> None:
    resolved = make_setup().resolved
    work = StepWork(num_tokens=10**6)
    alone, shared = CostModel(MODEL, DEVICE, resolved), CostModel(MODEL, DEVICE, resolved, num_devices=4)
    in_common = 1e-3 + shared.collective_seconds(work.num_tokens)
    assert alone.seconds(work) - 1e-3 == pytest.approx(4 * (shared.seconds(work) - in_common))
    assert alone.collective_seconds(work.num_tokens) == 0


def test_ranks_add_up_twice_a_layer_and_once_for_the_embedding() -> None:
    cost = CostModel(ModelWork.of(SHAPES["llama-70b"]), H200, make_setup().resolved, num_devices=8)
    sent = 2 * 7 / 8 * 64 * 8192 * 2 / NVLINK_4.bandwidth
    assert cost.collective_seconds(64) == pytest.approx((2 * 80 + 1) * (NVLINK_4.latency + sent))
    wider = CostModel(ModelWork.of(SHAPES["llama-70b"]), H200, make_setup().resolved, num_devices=16)
    sent = 2 * 15 / 16 * 64 * 8192 * 2 / INFINIBAND_NDR.bandwidth
    assert wider.collective_seconds(64) == pytest.approx((2 * 80 + 1) * (INFINIBAND_NDR.latency + sent)), "two hosts"


def test_windows_limit_what_is_read() -> None:
    model = replace(MODEL, windows=(None, 16))
    cost = CostModel(model, DEVICE, make_setup().resolved)
    assert cost.has_windows
    assert cost.visible(10) == 10
    assert cost.visible(100) == (100 + 16) // 2
    assert not CostModel(MODEL, DEVICE, make_setup().resolved).has_windows


def test_a_step_reads_the_experts_that_its_tokens_choose() -> None:
    resolved = make_setup().resolved
    device = replace(DEVICE, step_overhead=0.0, flops=1e30)
    seconds = CostModel(MODEL, device, resolved).seconds
    experts = ExpertWork(share=0.8, chosen_share=0.25, computed_share=0.5, num_experts=8, size=128)
    some = CostModel(replace(MODEL, experts=experts), device, resolved).seconds
    for tokens in (1, 3):
        work = StepWork(num_tokens=tokens)
        idle = 0.8 * 0.75**tokens * resolved.weight_bytes / device.bandwidth
        assert some(work) == pytest.approx(seconds(work) - idle)
    found = ModelWork.of(config_facts("mixtral", {**TINY_CONFIG, "model_type": "mixtral"})).experts
    assert found is not None
    assert found.chosen_share == pytest.approx(2 / 8)
    assert 0.5 < found.computed_share < found.share < 1
    assert found.num_experts == 8


def test_the_rank_with_the_most_experts_to_compute_keeps_the_others_waiting() -> None:
    experts = ExpertWork(share=0.8, chosen_share=8 / 128, computed_share=0.6, num_experts=128, size=768)
    few, many = (experts.operations(tokens, 8, whole=True) for tokens in (8, 4096))
    assert few > many > 1
    assert many < 1.1, "chance is even in the end"
    assert experts.operations(1, 64, whole=True) <= 1 + 0.6 * 63, "one rank has it all at worst"
    unread = [experts.unread_share(16, 8, whole=whole) for whole in (False, True)]
    assert 0 < unread[1] < unread[0]
    assert experts.unread_share(16, 1, whole=True) == unread[0]


def test_experts_narrower_than_a_tile_compute_it_whole() -> None:
    experts = ExpertWork(share=0.8, chosen_share=8 / 128, computed_share=0.6, num_experts=128, size=768)
    assert experts.operations(100, 4, whole=False) == pytest.approx(1.0), "192 columns are three tiles"
    assert experts.operations(100, 8, whole=False) == pytest.approx(1 + 0.6 * (128 / 96 - 1))


def test_work_of_a_model_is_what_its_spec_says() -> None:
    assert ModelWork.of(LLAMA_3_8B) == ModelWork(
        "Meta-Llama-3-8B", 8_030_261_248, 32 * 32 * 128, num_layers=32, hidden_size=4096
    )
    latent = ModelWork.of(SHAPES["deepseek-v2-lite"])
    assert 4 * latent.attended == 27 * 16 * 2 * (576 + 512), "a product with latents as keys, and one as values"
    assert ModelWork.of(with_windows(TINY, (8, None, 8, None))).windows == (8, None, 8, None)
