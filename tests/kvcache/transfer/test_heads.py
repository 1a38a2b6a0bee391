"""Cutting by heads: whatever two numbers of ranks, what goes through all heads comes out the same."""

import numpy as np
import pytest

from quire.kvcache.transfer.heads import cut_heads, join_heads, owners


@pytest.mark.parametrize(("num_heads", "ranks"), [(8, 1), (8, 2), (8, 4), (8, 8), (2, 4), (1, 4), (4, 4)])
def test_ranks_together_have_every_head_once(num_heads, ranks):
    assert [head for _, heads in owners(num_heads, ranks) for head in heads] == list(range(num_heads))


@pytest.mark.parametrize("there", [1, 2, 4, 8])
@pytest.mark.parametrize("here", [1, 2, 4, 8])
@pytest.mark.parametrize("num_heads", [1, 2, 8])
def test_from_some_ranks_to_others(num_heads, there, here):
    # [planes, block size, heads, bytes of a head]
    whole = np.random.default_rng(0).integers(0, 256, (6, 4, num_heads, 10), np.uint8)
    sent = join_heads([cut_heads(whole, rank, there) for rank in range(there)], num_heads)
    assert (sent == whole).all()
    for rank in range(here):
        each = max(1, num_heads // here)
        first = rank * num_heads // here
        assert (cut_heads(sent, rank, here) == whole[..., first : first + each, :]).all()
