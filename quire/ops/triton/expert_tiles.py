"""Grouping tokens by expert on the GPU: tiles of rows that multiply with the same expert. The host learns no numbers.

A pair is a token with one of its experts; pairs are numbered token by token. Tiles of an expert follow one another, and
its last may have empty places. How pairs are ordered within an expert is left to chance, and changes no result.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.triton.overlap import overlap, wait_for_inputs

EMPTY = -1
_PAIRS = 256
"""Of a program."""


def most_tiles(pairs: int, experts: int, block_rows: int) -> int:
    """More tiles than these are never needed: each expert may have one that is not full."""
    return pairs // block_rows + min(experts, pairs)


def expert_tiles(ids: Tensor, experts: int, block_rows: int) -> Tensor:
    """For every place of every tile, its pair or `EMPTY`: int32 [most tiles * block_rows]. ids: [tokens, top_k], below
    0 where a pair has no place.
    """
    pairs = ids.numel()
    places = most_tiles(pairs, experts, block_rows) * block_rows
    # counts begin at -1 too, so that one fill does for both
    memory = torch.full((experts + places,), EMPTY, dtype=torch.int32, device=ids.device)
    counts, tiles = memory[:experts], memory[experts:]
    ranks = torch.empty(pairs, dtype=torch.int32, device=ids.device)
    grid = (triton.cdiv(pairs, _PAIRS),)
    _count[grid](ids, counts, ranks, pairs, block=_PAIRS, **overlap(ids))
    _place[grid](
        ids,
        counts,
        ranks,
        tiles,
        pairs,
        experts=experts,
        padded_experts=triton.next_power_of_2(experts),
        block_rows=block_rows,
        block=_PAIRS,
        **overlap(ids),
    )
    return tiles


@triton.jit(do_not_specialize=["pairs"])
def _count(ids_at, counts_at, ranks_at, pairs, block: tl.constexpr, overlapped: tl.constexpr):
    """ranks[pair] = how many pairs of its expert came before it."""
    wait_for_inputs(overlapped)
    pair = tl.program_id(0) * block + tl.arange(0, block)
    within = pair < pairs
    expert = tl.load(ids_at + pair, mask=within, other=-1)
    within = expert >= 0
    before = tl.atomic_add(counts_at + tl.maximum(expert, 0), 1, mask=within, sem="relaxed")
    tl.store(ranks_at + pair, before + 1, mask=within)


@triton.jit(do_not_specialize=["pairs"])
def _place(
    ids_at,
    counts_at,
    ranks_at,
    tiles_at,
    pairs,
    experts: tl.constexpr,
    padded_experts: tl.constexpr,
    block_rows: tl.constexpr,
    block: tl.constexpr,
    overlapped: tl.constexpr,
):
    """tiles[first place of the pair's expert + its rank] = pair."""
    wait_for_inputs(overlapped)
    every = tl.arange(0, padded_experts)
    counts = tl.load(counts_at + every, mask=every < experts, other=-1) + 1
    taken = (counts + block_rows - 1) // block_rows * block_rows
    firsts = tl.cumsum(taken, axis=0) - taken
    pair = tl.program_id(0) * block + tl.arange(0, block)
    within = pair < pairs
    expert = tl.load(ids_at + pair, mask=within, other=-1).to(tl.int32)
    within = expert >= 0
    first = tl.gather(firsts, tl.maximum(expert, 0), axis=0)
    rank = tl.load(ranks_at + pair, mask=within, other=0)
    tl.store(tiles_at + first + rank, pair, mask=within)
