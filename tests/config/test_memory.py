"""What a device's memory is spent on."""

from dataclasses import replace

from quire.config.memory import MemoryBudget, activation_bytes, graph_bytes, sampler_bytes, weights_on_device
from quire.config.parallel import ParallelConfig
from tests.config.examples import LLAMA_3_8B

ALONE = ParallelConfig()


def test_weights_are_16_06_gb() -> None:
    assert weights_on_device(LLAMA_3_8B, "bfloat16", ALONE) == 16_060_522_496


def test_plain_floats_are_converted_and_packed_formats_are_not() -> None:
    assert weights_on_device(LLAMA_3_8B, "float32", ALONE) == 2 * 16_060_522_496
    packed = replace(LLAMA_3_8B, weight_bytes={"q4_k": 1000, "float32": 400})
    assert weights_on_device(packed, "bfloat16", ALONE) == 1200


def test_weights_are_shared_between_devices() -> None:
    assert weights_on_device(LLAMA_3_8B, "bfloat16", ParallelConfig(tensor_parallel_size=4)) == 16_060_522_496 // 4
    staged = weights_on_device(LLAMA_3_8B, "bfloat16", ParallelConfig(pipeline_parallel_size=2))
    embedding = 128_256 * 4096 * 2
    assert staged == (16_060_522_496 - embedding) // 2 + embedding


def test_activations_shrink_with_ranks_but_not_to_nothing() -> None:
    alone = activation_bytes(LLAMA_3_8B, "bfloat16", 8192, 1)
    assert alone == 8192 * 4096 * 16 * 2
    assert alone // 4 < activation_bytes(LLAMA_3_8B, "bfloat16", 8192, 8) < alone


def test_sampler_takes_rows_of_logits() -> None:
    assert sampler_bytes(LLAMA_3_8B, 256) == 256 * 128_256 * 4 * 3


def test_budget_adds_up_and_may_be_overspent() -> None:
    budget = MemoryBudget(total=100, utilization=0.5, weights=30, activations=20, sampler=5, swap=1)
    assert (budget.share, budget.spent, budget.kv) == (50, 56, -6)


def test_what_a_gpu_takes_besides_tensors_is_of_the_share_too() -> None:
    budget = MemoryBudget(total=100, utilization=0.9, weights=30, activations=20, sampler=5, runtime=3, graphs=4)
    assert (budget.kv, budget.of_tensors) == (28, 83)


def test_graphs_share_what_the_largest_computes_in() -> None:
    """An H200 used 400 MiB of it with llama-8b, and 140 MiB for its 123 graphs."""
    shared = activation_bytes(LLAMA_3_8B, "bfloat16", 256, 1) + sampler_bytes(LLAMA_3_8B, 256)
    assert 400 << 20 < shared < 440 << 20
    each = (graph_bytes(LLAMA_3_8B, "bfloat16", 256, 1) - shared) // 256
    assert 140 << 20 < 123 * each < 180 << 20
