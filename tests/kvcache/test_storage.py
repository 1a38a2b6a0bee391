"""Blocks move as plans say: swaps out first, then swaps in, then copies one after the other."""

from dataclasses import replace

import pytest
import torch

from quire.config.dtypes import DTYPE_BYTES
from quire.config.kv_layout import kv_shape
from quire.config.resolved import KVGroup, KVLayout
from quire.core.errors import ConfigError
from quire.core.plan import Move
from quire.kvcache.storage import KVStorage
from quire.spec.cache import KeyValueCache, LatentCache

CPU = torch.device("cpu")
KEYS_AND_VALUES = KeyValueCache(num_heads=1, head_dim=3)
LATENT = LatentCache(latent=4, rotary=2)
TWO_LAYERS = (KVGroup((0, 1), planes=KEYS_AND_VALUES.planes),)


def make(groups=TWO_LAYERS, num_cpu_blocks=4, dtype=torch.float32) -> KVStorage:
    layout = KVLayout(2, 6, num_cpu_blocks, groups, block_bytes=1, bytes_per_token=1, dtype="float32")
    return KVStorage(layout, dtype, CPU)


def fill(storage: KVStorage, layer: int) -> None:
    """Block b of a layer holds layer * 100 + b, and its values the negative of that."""
    (keys, values), _ = storage.layer(layer)
    for block in range(keys.shape[0]):
        keys[block] = layer * 100 + block
        values[block] = -(layer * 100 + block)


def content(storage: KVStorage, layer: int) -> list[int]:
    (keys, values), _ = storage.layer(layer)
    assert torch.equal(values, -keys)
    return [int(keys[block, 0, 0, 0]) for block in range(keys.shape[0])]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_fresh_blocks_are_zero(dtype):
    storage = make(dtype=dtype)
    (keys, values), group = storage.layer(1)
    assert keys.shape == (7, 2, 1, 3)
    assert (keys.dtype, values.dtype, group) == (dtype, dtype, 0)
    assert not keys.any()


def test_all_layers_of_a_block_move_together():
    storage = make()
    for layer in (0, 1):
        fill(storage, layer)
    storage.move([], [], [Move(1, 4), Move(2, 5)])
    assert content(storage, 0) == [0, 1, 2, 3, 1, 2, 6]
    assert content(storage, 1) == [100, 101, 102, 103, 101, 102, 106]


def test_a_copy_of_a_copy_sees_the_first():
    storage = make()
    fill(storage, 0)
    storage.move([], [], [Move(1, 2), Move(2, 3), Move(4, 2)])
    assert content(storage, 0) == [0, 1, 4, 1, 4, 5, 6]


def test_out_before_in_before_copies():
    storage = make()
    fill(storage, 0)
    storage.move([Move(1, 2), Move(3, 1)], [], [])
    # block 1 goes out under its own feet: its old content returns to block 3, and block 1 gets what block 3 was
    storage.move([Move(5, 3)], [Move(2, 3), Move(1, 1), Move(3, 6)], [Move(3, 5)])
    assert content(storage, 0) == [0, 3, 2, 1, 4, 1, 5]


def test_groups_share_tensors_but_not_blocks():
    storage = make(
        groups=(
            KVGroup((0, 2), planes=KEYS_AND_VALUES.planes),
            KVGroup((1, 3), window=4, planes=KEYS_AND_VALUES.planes),
        )
    )
    starts = [storage.layer(layer)[0][0].data_ptr() for layer in range(4)]
    assert (starts[0], starts[2]) == (starts[1], starts[3])
    assert starts[0] != starts[2]
    assert [storage.layer(layer)[1] for layer in range(4)] == [0, 1, 0, 1]


def test_planes_are_those_of_the_cache_kind():
    planes, _ = make().layer(0)
    assert [tuple(plane.shape) for plane in planes] == [(7, 2, 1, 3)] * 2
    planes, _ = make(groups=(KVGroup((0, 1), planes=LATENT.planes),)).layer(1)
    assert [tuple(plane.shape) for plane in planes] == [(7, 2, 6)]


def test_planes_of_layers_do_not_overlap():
    for groups in (TWO_LAYERS, (KVGroup((0, 1), planes=LATENT.planes),)):
        storage = make(groups=groups)
        planes = [plane for layer in (0, 1) for plane in storage.layer(layer)[0]]
        for number, plane in enumerate(planes):
            plane.fill_(number + 1)
        assert all(torch.all(plane == number + 1) for number, plane in enumerate(planes))


def test_a_latent_moves_with_its_block():
    storage = make(groups=(KVGroup((0, 1), planes=LATENT.planes),))
    for layer in (0, 1):
        [plane], _ = storage.layer(layer)
        plane.copy_(torch.arange(7 * 2 * 6).view(7, 2, 6) + layer * 1000)
    before = [storage.layer(layer)[0][0].clone() for layer in (0, 1)]
    storage.move([Move(1, 2)], [], [Move(3, 1)])
    storage.move([], [Move(2, 5)], [])
    for layer in (0, 1):
        [plane], _ = storage.layer(layer)
        assert torch.equal(plane[5], before[layer][1])
        assert torch.equal(plane[1], before[layer][3])


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.int8])
def test_bytes_of_any_kind_move_as_they_are(dtype):
    storage = make(groups=(KVGroup((0, 1), planes=replace(KEYS_AND_VALUES, scale_bytes=4).planes),), dtype=dtype)
    generator = torch.Generator().manual_seed(0)
    planes = [plane.view(torch.uint8) for layer in (0, 1) for plane in storage.layer(layer)[0]]
    for plane in planes:
        plane.random_(0, 256, generator=generator)
    before = [plane.clone() for plane in planes]
    assert storage.layer(0)[0][0].dtype == dtype
    storage.move([Move(1, 2)], [], [Move(3, 1)])
    storage.move([], [Move(2, 5)], [])
    for plane, was in zip(planes, before, strict=True):
        assert torch.equal(plane[5], was[1])
        assert torch.equal(plane[1], was[3])


@pytest.mark.parametrize("cache", [KEYS_AND_VALUES, replace(KEYS_AND_VALUES, scale_bytes=4), LATENT])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_blocks_take_what_was_planned(cache, dtype):
    """Of the page that the plan gives a block, the planes of a full group leave nothing over."""
    caches = [cache, replace(cache, window=4)] * 3
    shape = kv_shape(caches, DTYPE_BYTES[dtype], block_size=2)
    layout = KVLayout(2, 6, 0, shape.groups, shape.block_bytes, shape.bytes_per_token, dtype)
    storage = KVStorage(layout, getattr(torch, dtype), CPU)
    planes = [plane for layer in shape.groups[0].layers for plane in storage.layer(layer)[0]]
    assert sum(plane[0].nbytes for plane in planes) == shape.block_bytes


@pytest.mark.parametrize(
    "caches", [(KEYS_AND_VALUES, LATENT), (KEYS_AND_VALUES, KeyValueCache(num_heads=2, head_dim=3))]
)
def test_kinds_of_different_planes_are_refused(caches):
    groups = tuple(KVGroup((layer,), planes=cache.planes) for layer, cache in enumerate(caches))
    with pytest.raises(ConfigError, match="caches of different shapes"):
        make(groups=groups)
