"""Cutting KV by heads: from all heads of a block to those of one rank, and back. Functions over shapes and arrays.

Engines may share the same model between different numbers of ranks. Blocks travel with all heads, so that either side
needs to know its own ranks only.
"""

import numpy as np
from numpy.typing import NDArray

from quire.spec.rank import Place, heads_of

Bytes = NDArray[np.uint8]


def owners(num_heads: int, ranks: int) -> list[tuple[int, range]]:
    """The ranks that together have every head once, with the heads of each."""
    found: list[tuple[int, range]] = []
    known = 0
    for rank in range(ranks):
        heads = heads_of(num_heads, Place(rank, ranks))
        if heads.start == known:
            found.append((rank, heads))
            known = heads.stop
    return found


def cut_heads(whole: Bytes, rank: int, ranks: int) -> Bytes:
    """A rank's part of blocks [..., heads, bytes of a head]. Latents have no heads, and every rank keeps all of them:
    pass them as one head."""
    heads = heads_of(whole.shape[-2], Place(rank, ranks))
    return whole[..., heads.start : heads.stop, :]
