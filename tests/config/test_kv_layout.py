"""KV arithmetic: bytes a token, groups of equal size, blocks a sequence needs."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.config.kv_layout import (
    MOST_GROUPS,
    blocks_for,
    caches_of_stages,
    group_layers,
    kv_shape,
    layout_of_stage,
    longest_sequence,
    most_blocks,
)
from quire.config.resolved import KVGroup, KVLayout
from quire.core.errors import ConfigError
from quire.spec.cache import CacheSpec, KeyValueCache, LatentCache, StateCache, elements_per_token

windows_of_layers = st.lists(st.sampled_from([None, 128, 512, 4096]), min_size=1, max_size=100)
LLAMA = KeyValueCache(num_heads=8, head_dim=128)
DEEPSEEK = LatentCache(latent=512, rotary=64)
SMALL = KeyValueCache(num_heads=2, head_dim=72)
"""Half of what the latent takes: 288 elements."""
STATE = StateCache(elements_per_sequence=4096)


def windowed(windows: list[int | None]) -> list[CacheSpec]:
    """One element a token, so that sizes are counts of layers."""
    return [LatentCache(1, 0, window) for window in windows]


def grouped(windows: list[int | None]) -> tuple[tuple[KVGroup, ...], int]:
    return group_layers(windowed(windows), [1] * len(windows))


def test_llama_3_8b_takes_128_kib_a_token() -> None:
    shape = kv_shape([LLAMA] * 32, itemsize=2, block_size=16)
    assert shape.bytes_per_token == 128 * 1024
    assert shape.block_bytes == 2 * 2**20
    assert shape.groups == (KVGroup(tuple(range(32)), None, LLAMA.planes),)
    assert (shape.layers_per_group, shape.padded_layers) == (32, 0)


def test_a_latent_takes_one_vector_for_all_heads() -> None:
    shape = kv_shape([DEEPSEEK] * 61, itemsize=2, block_size=64)
    assert shape.bytes_per_token == 61 * 576 * 2
    assert shape.block_bytes == 64 * 61 * 576 * 2
    assert shape.groups == (KVGroup(tuple(range(61)), None, DEEPSEEK.planes),)


def test_a_state_takes_no_pages() -> None:
    shape = kv_shape([STATE, STATE, LLAMA] * 4, itemsize=2, block_size=16)
    assert shape.groups == (KVGroup((2, 5, 8, 11), None, LLAMA.planes),)
    assert shape.bytes_per_token == 4 * 4096
    assert shape.padded_layers == 0
    with pytest.raises(ConfigError, match="no layer keeps anything of its tokens"):
        kv_shape([STATE] * 4, itemsize=2, block_size=16)


def test_kinds_of_different_sizes_have_pages_of_equal_bytes() -> None:
    shape = kv_shape([DEEPSEEK, SMALL, SMALL] * 2, itemsize=2, block_size=16)
    assert shape.groups == (KVGroup((0, 3), None, DEEPSEEK.planes), KVGroup((1, 2, 4, 5), None, SMALL.planes))
    assert shape.page_token_bytes == 2 * 576 * 2 == 4 * 288 * 2
    assert (shape.padded_layers, shape.bytes_per_token) == (0, 4 * 576 * 2)


def test_a_page_holds_one_layer_of_the_largest_kind() -> None:
    shape = kv_shape([LLAMA, SMALL], itemsize=1, block_size=16)
    assert shape.groups == (KVGroup((0,), None, LLAMA.planes), KVGroup((1,), None, SMALL.planes))
    assert (shape.page_token_bytes, shape.bytes_per_token) == (2048, 2048 + 288)


kinds_of_layers = st.lists(
    st.sampled_from([LLAMA, replace(LLAMA, window=128), DEEPSEEK, SMALL, STATE]), min_size=1, max_size=60
).filter(lambda caches: any(cache.planes for cache in caches))


@given(kinds_of_layers, st.sampled_from([1, 2, 4]))
def test_mixed_kinds_hold_every_layer_once_and_fit_their_pages(caches: list[CacheSpec], itemsize: int) -> None:
    shape = kv_shape(caches, itemsize, block_size=16)
    paged = [layer for layer, cache in enumerate(caches) if cache.planes]
    assert sorted(layer for group in shape.groups for layer in group.layers) == paged
    assert shape.bytes_per_token == sum(elements_per_token(cache) for cache in caches) * itemsize
    for group in shape.groups:
        [kind] = {caches[layer] for layer in group.layers}
        assert (group.window, group.planes) == (kind.window, kind.planes)
        assert group.elements_per_token == elements_per_token(kind)
        assert len(group.layers) * group.elements_per_token * itemsize <= shape.page_token_bytes
    assert len(shape.groups) <= max(MOST_GROUPS, len(set(caches)))


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
    groups, page = grouped(windows)
    shape = kv_shape(windowed(windows), itemsize=1, block_size=1)
    assert (page, len(groups), shape.padded_layers) == (size, num_groups, padded)
    assert shape.layers_per_group == size


@given(windows_of_layers)
def test_groups_hold_every_layer_once_and_one_window_each(windows: list[int | None]) -> None:
    groups, size = grouped(windows)
    assert sorted(layer for group in groups for layer in group.layers) == list(range(len(windows)))
    assert all(windows[layer] == group.window for group in groups for layer in group.layers)
    assert all(1 <= len(group.layers) <= size for group in groups)
    assert len(groups) <= max(MOST_GROUPS, len(set(windows)))


@given(windows_of_layers)
def test_no_other_cut_pads_less(windows: list[int | None]) -> None:
    _, chosen = grouped(windows)
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
    groups, _ = grouped(windows)
    longest = longest_sequence(groups, block_size, num_blocks, limit, chunk)
    assert longest == 0 or most_blocks(groups, block_size, longest, chunk) <= num_blocks
    assert longest == limit or most_blocks(groups, block_size, longest + 1, chunk) > num_blocks


@given(windows_of_layers, st.integers(1, 4), st.data())
def test_every_stage_has_its_layers_in_the_groups_of_all(
    windows: list[int | None], stages: int, data: st.DataObject
) -> None:
    caches = windowed(windows)
    borders = sorted(data.draw(st.lists(st.integers(0, len(caches)), min_size=stages - 1, max_size=stages - 1)))
    cut = [range(*ends) for ends in pairwise([0, *borders, len(caches)])]
    shape = kv_shape(caches_of_stages(caches, cut), itemsize=2, block_size=16)
    layout = KVLayout(16, 100, 0, shape.groups, shape.block_bytes, shape.bytes_per_token, "float16")
    for stage in cut:
        own = layout_of_stage(layout, caches[stage.start : stage.stop])
        assert sorted(layer for group in own.groups for layer in group.layers) == list(range(len(stage)))
        for group, planned in zip(own.groups, layout.groups, strict=True):
            assert group.window == planned.window
            assert len(group.layers) <= len(planned.layers)
            assert all(caches[stage.start + layer].window == group.window for layer in group.layers)
