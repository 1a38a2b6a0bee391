"""Blocks move as plans say: swaps out first, then swaps in, then copies one after the other."""

import pytest
import torch

from quire.config.resolved import KVGroup, KVLayout
from quire.core.plan import Move
from quire.kvcache.storage import KVStorage

CPU = torch.device("cpu")
TWO_LAYERS = (KVGroup((0, 1)),)


def make(groups=TWO_LAYERS, num_cpu_blocks=4, dtype=torch.float32) -> KVStorage:
    layout = KVLayout(2, 6, num_cpu_blocks, groups, block_bytes=1, bytes_per_token=1, dtype="float32")
    return KVStorage(layout, num_kv_heads=1, head_dim=3, dtype=dtype, device=CPU)


def fill(storage: KVStorage, layer: int) -> None:
    """Block b of a layer holds layer * 100 + b, and its values the negative of that."""
    keys, values, _ = storage.layer(layer)
    for block in range(keys.shape[0]):
        keys[block] = layer * 100 + block
        values[block] = -(layer * 100 + block)


def content(storage: KVStorage, layer: int) -> list[int]:
    keys, values, _ = storage.layer(layer)
    assert torch.equal(values, -keys)
    return [int(keys[block, 0, 0, 0]) for block in range(keys.shape[0])]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_fresh_blocks_are_zero(dtype):
    storage = make(dtype=dtype)
    keys, values, group = storage.layer(1)
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
    storage = make(groups=(KVGroup((0, 2)), KVGroup((1, 3), window=4)))
    assert storage.layer(0)[0].data_ptr() == storage.layer(1)[0].data_ptr()
    assert storage.layer(0)[0].data_ptr() != storage.layer(2)[0].data_ptr()
    assert [storage.layer(layer)[2] for layer in range(4)] == [0, 1, 0, 1]
