"""Cutting by heads: whatever two numbers of ranks, what goes through all heads comes out the same."""

import numpy as np
import pytest

from quire.config.resolved import KVGroup, KVLayout
from quire.kvcache.transfer.heads import cut_heads, owners
from quire.kvcache.transfer.host_blocks import HostBlocks
from quire.kvcache.transfer.ranked_blocks import RankedBlocks


@pytest.mark.parametrize(("num_heads", "ranks"), [(8, 1), (8, 2), (8, 4), (8, 8), (2, 4), (1, 4), (4, 4)])
def test_ranks_together_have_every_head_once(num_heads, ranks):
    assert [head for _, heads in owners(num_heads, ranks) for head in heads] == list(range(num_heads))


@pytest.mark.parametrize("there", [1, 2, 4, 8])
@pytest.mark.parametrize("here", [1, 2, 4, 8])
@pytest.mark.parametrize("num_heads", [1, 2, 8])
def test_from_some_ranks_to_others(num_heads, there, here):
    # [planes, block size, heads, bytes of a head]
    whole = np.random.default_rng(0).integers(0, 256, (6, 4, num_heads, 10), np.uint8)
    sent = np.concatenate([cut_heads(whole, rank, there) for rank, _ in owners(num_heads, there)], axis=-2)
    assert (sent == whole).all()
    for rank in range(here):
        each = max(1, num_heads // here)
        first = rank * num_heads // here
        assert (cut_heads(sent, rank, here) == whole[..., first : first + each, :]).all()


@pytest.mark.parametrize("num_heads", [1, 2, 4])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_blocks_of_ranks_look_like_those_of_one_device(num_heads, ranks):
    held = [memory_of(num_heads, ranks, seed) for seed in range(ranks)]
    for rank in range(ranks):  # ranks with the same head hold the same
        held[rank][:] = memory_of(num_heads, ranks, rank * num_heads // ranks if num_heads < ranks else rank)
    layout = layout_of(num_heads, ranks)
    blocks = RankedBlocks([HostBlocks(each, layout) for each in held], layout, num_heads)
    count = 19
    whole = bytearray(count * blocks.block_bytes)
    blocks.read(list(range(1, count + 1)), memoryview(whole))
    others = [np.zeros_like(each) for each in held]
    again = RankedBlocks([HostBlocks(each, layout) for each in others], layout, num_heads)
    again.write(list(range(1, count + 1)), memoryview(whole), again.fence())
    for mine, theirs in zip(held, others, strict=True):
        came = theirs.reshape(4, 25, -1)
        assert (mine.reshape(4, 25, -1)[:, 1 : count + 1] == came[:, 1 : count + 1]).all()
        assert not came[:, count + 1 :].any()


def layout_of(num_heads: int, ranks: int) -> KVLayout:
    plane = (max(1, num_heads // ranks), 8)
    return KVLayout(4, 24, 0, (KVGroup((0, 1), None, (plane, plane)),), 1, 1, "float16")


def memory_of(num_heads: int, ranks: int, seed: int) -> np.ndarray:
    size = 4 * 25 * 4 * max(1, num_heads // ranks) * 8 * 2
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)
