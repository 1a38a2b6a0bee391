"""KV arithmetic: bytes a token, groups of equal size, blocks a sequence needs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.config.kv_layout import (
    MOST_GROUPS,
    blocks_for,
    group_layers,
    kv_heads_per_rank,
    kv_shape,
    longest_sequence,
    most_blocks,
    stage_layers,
)
from quire.config.resolved import KVGroup
from quire.core.errors import ConfigError

windows_of_layers = st.lists(st.sampled_from([None, 128, 512, 4096]), min_size=1, max_size=100)


def test_llama_3_8b_takes_128_kib_a_token() -> None:
    shape = kv_shape([None] * 32, kv_heads=8, head_dim=128, itemsize=2, block_size=16)
    assert shape.bytes_per_token == 128 * 1024
    assert shape.block_bytes == 2 * 2**20
    assert shape.groups == (KVGroup(tuple(range(32))),)
    assert shape.padded_layers == 0


def gemma_3(num_layers: int) -> list[int | None]:
    return [None if (layer + 1) % 6 == 0 else 1024 for layer in range(num_layers)]


@pytest.mark.parametrize(
    ("windows", "size", "num_groups", "padded"),
    [
        ([4096, None] * 13, 13, 2, 0),  # Gemma 2 2B
        (gemma_3(26), 4, 7, 2),  # Gemma 3 1B: 22 sliding, 4 full
        (gemma_3(34), 5, 7, 1),  # Gemma 3 4B: 29 sliding, 5 full
        (gemma_3(62), 13, 5, 3),  # Gemma 3 27B: 52 sliding, 10 full
        ([4096] * 32, 32, 1, 0),  # Mistral 7B v0.1
        ([None, 64, 128], 1, 3, 0),
    ],
)
def test_groups_of_known_models(windows: list[int | None], size: int, num_groups: int, padded: int) -> None:
    groups, layers_per_group = group_layers(windows)
    shape = kv_shape(windows, kv_heads=1, head_dim=1, itemsize=1, block_size=1)
    assert (layers_per_group, len(groups), shape.padded_layers) == (size, num_groups, padded)


@given(windows_of_layers)
def test_groups_hold_every_layer_once_and_one_window_each(windows: list[int | None]) -> None:
    groups, size = group_layers(windows)
    assert sorted(layer for group in groups for layer in group.layers) == list(range(len(windows)))
    assert all(windows[layer] == group.window for group in groups for layer in group.layers)
    assert all(1 <= len(group.layers) <= size for group in groups)
    assert len(groups) <= max(MOST_GROUPS, len(set(windows)))


@given(windows_of_layers)
def test_no_other_cut_pads_less(windows: list[int | None]) -> None:
    _, chosen = group_layers(windows)
    counts = [windows.count(window) for window in set(windows)]

    def room(size: int) -> int:
        return sum(-(-count // size) for count in counts) * size

    def groups(size: int) -> int:
        return room(size) // size

    others = [size for size in range(1, 101) if groups(size) <= max(MOST_GROUPS, len(counts))]
    assert room(chosen) == min(room(size) for size in others)


def held_blocks(window: int | None, block_size: int, length: int, chunk: int) -> int:
    """Most blocks in use in any step that grows a sequence by `chunk` tokens, wherever it starts."""
    most = 0
    for start in range(length):
        end = min(start + chunk, length)
        first = 0 if window is None else max(0, start - window + 1)
        most = max(most, (end - 1) // block_size - first // block_size + 1)
    return most


@given(
    window=st.one_of(st.none(), st.integers(1, 60)),
    block_size=st.sampled_from([1, 2, 4, 16]),
    length=st.integers(1, 150),
    chunk=st.integers(1, 40),
)
def test_blocks_for_is_enough_and_hardly_more(window: int | None, block_size: int, length: int, chunk: int) -> None:
    groups = (KVGroup((0,), window),)
    needed = held_blocks(window, block_size, length, chunk)
    assert needed <= blocks_for(groups, block_size, length, chunk) <= needed + (2 if block_size == 1 else 1)


@given(windows_of_layers, st.sampled_from([1, 16]), st.integers(0, 5000), st.integers(1, 3000), st.integers(1, 512))
def test_longest_sequence_fits_and_one_token_more_does_not(
    windows: list[int | None], block_size: int, num_blocks: int, limit: int, chunk: int
) -> None:
    groups, _ = group_layers(windows)
    longest = longest_sequence(groups, block_size, num_blocks, limit, chunk)
    assert longest == 0 or most_blocks(groups, block_size, longest, chunk) <= num_blocks
    assert longest == limit or most_blocks(groups, block_size, longest + 1, chunk) > num_blocks


def test_kv_heads_are_cut_or_replicated() -> None:
    assert [kv_heads_per_rank(8, size) for size in (1, 2, 8, 16, 32)] == [8, 4, 1, 1, 1]
    with pytest.raises(ConfigError, match="--tensor-parallel-size is 3, but the model has 8 KV heads"):
        kv_heads_per_rank(8, 3)


def test_stages_hold_every_layer_in_order() -> None:
    assert stage_layers(7, 3) == [range(3), range(3, 5), range(5, 7)]
    with pytest.raises(ConfigError, match="--pipeline-parallel-size is 5"):
        stage_layers(4, 5)
