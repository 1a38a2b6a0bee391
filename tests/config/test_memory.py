"""What a device's memory is spent on."""

from dataclasses import replace

import pytest

from quire.config.holding import Holding
from quire.config.memory import (
    MemoryBudget,
    activation_bytes,
    graph_bytes,
    layer_bytes,
    row_bytes,
    sampler_bytes,
    stages_of,
    weights_by_stage,
    weights_on_device,
)
from quire.config.parallel import ParallelConfig
from quire.models.loading.header import config_facts
from tests.config.examples import BERT, LLAMA_3_8B, LLAMA_3_8B_CONFIG, TINY, stored_as, with_spec

ALONE = ParallelConfig()
BF16, F32 = Holding("bfloat16"), Holding("float32")
TOTAL = 16_060_522_496
NORM = 4096 * 2
LAYER = (4096 * (4096 + 2 * 1024 + 4096 + 3 * 14336) * 2) + 2 * NORM
TABLE = 128_256 * 4096 * 2
"""Bytes in bfloat16 of one norm, one layer, and the embedding or the head."""


def test_weights_are_16_06_gb() -> None:
    assert weights_on_device(LLAMA_3_8B, BF16, ALONE) == TOTAL == 32 * LAYER + 2 * TABLE + NORM
    assert {layer_bytes(LLAMA_3_8B, BF16, ALONE, layer) for layer in range(32)} == {LAYER}


def test_a_tied_head_counts_once() -> None:
    tied = config_facts("tied", LLAMA_3_8B_CONFIG | {"tie_word_embeddings": True})
    assert weights_on_device(tied, BF16, ALONE) == TOTAL - TABLE


def test_plain_floats_are_converted_and_packed_formats_are_not() -> None:
    assert weights_on_device(LLAMA_3_8B, F32, ALONE) == 2 * TOTAL
    undescribed = with_spec(replace(TINY, other_bytes={"Q4_K": 1000, "float32": 400}), is_described=False)
    assert weights_on_device(undescribed, BF16, ALONE) == 1200


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_K", "Q6_K"])
def test_packed_weights_take_what_they_are_stored_in_where_they_stay_packed(kind: str) -> None:
    packed = stored_as(LLAMA_3_8B, kind)
    norms = 65 * NORM
    kept = weights_on_device(packed, Holding("bfloat16", keep_packed=True), ALONE)
    assert kept == packed.weight_bytes[kind] + norms
    assert weights_on_device(packed, BF16, ALONE) == TOTAL


def test_matrices_are_shared_between_devices_and_norms_are_not() -> None:
    shared = weights_on_device(LLAMA_3_8B, BF16, ParallelConfig(tensor_parallel_size=4))
    assert shared == (TOTAL - 65 * NORM) // 4 + 65 * NORM


def test_stages_hold_layers_and_the_first_and_last_one_table_each() -> None:
    staged = weights_on_device(LLAMA_3_8B, BF16, ParallelConfig(pipeline_parallel_size=2))
    assert staged == 16 * LAYER + TABLE + NORM
    # a table is worth 2.4 layers
    three = ParallelConfig(pipeline_parallel_size=3)
    assert stages_of(LLAMA_3_8B, three) == (range(10), range(10, 22), range(22, 32))
    assert weights_by_stage(LLAMA_3_8B, BF16, three) == [10 * LAYER + TABLE, 12 * LAYER, 10 * LAYER + TABLE + NORM]
    assert sum(weights_by_stage(LLAMA_3_8B, BF16, three)) == TOTAL


def test_words_that_are_the_head_too_are_on_the_first_and_the_last_stage() -> None:
    tied = replace(LLAMA_3_8B, spec=replace(LLAMA_3_8B.spec, head=None, tied=True))
    first, middle, last = weights_by_stage(tied, BF16, ParallelConfig(pipeline_parallel_size=3))
    assert (first, middle, last) == (10 * LAYER + TABLE, 12 * LAYER, 10 * LAYER + TABLE + NORM)


def test_an_encoder_has_tables_of_positions_and_types() -> None:
    assert weights_on_device(BERT, F32, ALONE) == 4 * BERT.num_parameters


def test_activations_are_those_of_the_widest_layer() -> None:
    # beside the residual stream: three of its width, gate and up, and their product
    assert activation_bytes(LLAMA_3_8B, "bfloat16", 8192, 1) == 8192 * (4 * 4096 + 3 * 14336) * 2
    narrow = config_facts("narrow", LLAMA_3_8B_CONFIG | {"intermediate_size": 1024})
    assert activation_bytes(narrow, "bfloat16", 10, 1) == 10 * (4 * 4096 + (4096 + 2 * 1024) + 4096) * 2


def test_activations_are_those_of_any_layer() -> None:
    wide = config_facts("wide", LLAMA_3_8B_CONFIG | {"intermediate_size": 65_536})
    layers = (LLAMA_3_8B.spec.layers[0], wide.spec.layers[1], *LLAMA_3_8B.spec.layers[2:])
    mixed = with_spec(LLAMA_3_8B, layers=layers)
    assert activation_bytes(mixed, "float32", 10, 1) == 10 * (4 * 4096 + 3 * 65_536) * 4


def test_activations_shrink_with_ranks_but_not_to_nothing() -> None:
    alone = activation_bytes(LLAMA_3_8B, "bfloat16", 8192, 1)
    shared = activation_bytes(LLAMA_3_8B, "bfloat16", 8192, 8)
    assert alone // 4 < shared < alone
    assert shared == 8192 * (4 * 4096 + 3 * 14336 // 8) * 2


def test_sampler_takes_rows_of_logits() -> None:
    assert sampler_bytes(LLAMA_3_8B, 256) == 256 * 128_256 * 4 * 3


def test_rows_hold_tokens_block_tables_and_states() -> None:
    tables = 7 * (63 + 2)
    assert row_bytes(256, 1000, num_groups=7, block_size=16) == 257 * (1001 + tables) * 4
    assert row_bytes(256, 1000, num_groups=7, block_size=16, state=500) == 257 * ((1001 + tables) * 4 + 500)


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
