"""What sequences of a step have in front in common, found on the device from their tables and lengths.

Sequences with the same block at one depth are a group, and groups are cut into tiles of sequences that will attend
together. For that every sequence is compared with every other, which is quick for as many as run at a time; how far a
tile's sequences have the same blocks is then read block by block.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.triton.attend_keys import padded

COUNTED = 128
"""Positions that sequences have in common count in multiples of this: tiles of all kernels divide it."""
DEPTH = 256
"""Positions by whose last block sequences are put side by side."""
MOST_ROWS = 64
MOST_SEQUENCES = 32
"""Rows (a sequence's heads of one KV head each) and sequences of a tile. 64 rows are what a warpgroup of Hopper
multiplies at once; an H200 computes tiles of 128 slower."""


def sequences_in_tile(group: int) -> int:
    return max(1, min(MOST_SEQUENCES, MOST_ROWS // group))


@triton.jit
def group_kernel(
    names_at,  # int32 [sequences]: the block by which a sequence's group is known, 0 where it is too short
    sizes_at,  # int32 [sequences]: how many are in its group
    ranks_at,  # int32 [sequences]: which of those it is
    tables_at,
    lengths_at,
    num_sequences,
    table_stride,
    column,
    depth: tl.constexpr,
    padded_sequences: tl.constexpr,
    here: tl.constexpr,
):
    """Sequences that have the same block in `column` of their tables, behind `depth` positions, are a group."""
    every = tl.arange(0, padded_sequences)
    mine = tl.program_id(0) * here + tl.arange(0, here)
    names = _block_at(tables_at, lengths_at, every, num_sequences, table_stride, column, depth)
    my_names = _block_at(tables_at, lengths_at, mine, num_sequences, table_stride, column, depth)
    is_same = (names[None, :] == my_names[:, None]) & (every < num_sequences)[None, :]
    is_before = is_same & (every[None, :] < mine[:, None])
    tl.store(names_at + mine, my_names, mask=mine < num_sequences)
    tl.store(sizes_at + mine, tl.sum(is_same.to(tl.int32), 1), mask=mine < num_sequences)
    tl.store(ranks_at + mine, tl.sum(is_before.to(tl.int32), 1), mask=mine < num_sequences)


@triton.jit
def _block_at(tables_at, lengths_at, sequences, num_sequences, table_stride, column, depth: tl.constexpr):
    is_there = sequences < num_sequences
    lengths = tl.load(lengths_at + sequences, mask=is_there, other=0)
    places = tables_at + sequences.to(tl.int64) * table_stride + column
    return tl.load(places, mask=is_there & (lengths > depth), other=0)


@triton.jit
def order_kernel(
    order_at,  # int32 [tiles, num_here]: which sequence comes where; -1 where none does
    names_at,
    sizes_at,
    ranks_at,
    num_sequences,
    num_here: tl.constexpr,
    padded_sequences: tl.constexpr,
    here: tl.constexpr,
):
    """Gives each group that fills half a tile tiles of its own, behind those of all other sequences."""
    every = tl.arange(0, padded_sequences)
    mine = tl.program_id(0) * here + tl.arange(0, here)
    names = tl.load(names_at + every, mask=every < num_sequences, other=0)
    sizes = tl.load(sizes_at + every, mask=every < num_sequences, other=0)
    ranks = tl.load(ranks_at + every, mask=every < num_sequences, other=0)
    is_grouped = (names != 0) & (2 * sizes >= num_here)
    is_single = (every < num_sequences) & (is_grouped == 0)
    room = tl.where(is_grouped & (ranks == 0), tl.cdiv(sizes, num_here) * num_here, 0)  # told by the first of a group

    my_names = tl.load(names_at + mine, mask=mine < num_sequences, other=0)
    my_sizes = tl.load(sizes_at + mine, mask=mine < num_sequences, other=0)
    my_ranks = tl.load(ranks_at + mine, mask=mine < num_sequences, other=0)
    room_before = tl.sum(tl.where(names[None, :] < my_names[:, None], room[None, :], 0), 1)
    singles_before = tl.sum((is_single[None, :] & (every[None, :] < mine[:, None])).to(tl.int32), 1)
    singles = tl.cdiv(tl.sum(is_single.to(tl.int32), 0), num_here) * num_here
    am_grouped = (my_names != 0) & (2 * my_sizes >= num_here)
    place = tl.where(am_grouped, singles + room_before + my_ranks, singles_before)
    tl.store(order_at + place, mine, mask=mine < num_sequences)


@triton.jit
def common_kernel(
    common_at,  # int32 [tiles]: positions that all sequences of a tile have in common
    begins_at,  # int32 [sequences]: the same for each
    order_at,
    tables_at,
    lengths_at,
    table_stride,
    block_size: tl.constexpr,
    counted: tl.constexpr,
    num_here: tl.constexpr,  # sequences in a tile
    padded_here: tl.constexpr,
    columns_at_once: tl.constexpr,
):
    """How far a tile's sequences have the same blocks, never up to a sequence's last position."""
    tile = tl.program_id(0)
    within = tl.arange(0, padded_here)
    sequences = tl.load(order_at + tile * num_here + within, mask=within < num_here, other=-1).to(tl.int64)
    is_there = sequences >= 0
    lengths = tl.load(lengths_at + sequences, mask=is_there, other=2147483647)
    most = (tl.min(lengths, 0) - 1).to(tl.int32) // block_size  # whole blocks before every sequence's last position
    first = tl.load(order_at + tile * num_here).to(tl.int64)
    if tl.sum(is_there.to(tl.int32), 0) < 2:
        most = most * 0  # alone it is read once anyway
    common = most * 0
    begin = most * 0
    while begin < most:
        columns = begin + tl.arange(0, columns_at_once)
        expected = tl.load(tables_at + first * table_stride + columns, mask=columns < most, other=-1)
        places = tables_at + sequences[:, None] * table_stride + columns[None, :]
        blocks = tl.load(places, mask=is_there[:, None] & (columns < most)[None, :], other=-1)
        is_other = ((blocks != expected[None, :]) & is_there[:, None]) | (columns >= most)[None, :]
        ends = tl.min(tl.min(tl.where(is_other, columns[None, :], 2147483647), 1), 0)
        common = tl.minimum(ends, begin + columns_at_once)
        begin = tl.where(common < begin + columns_at_once, most, begin + columns_at_once)
    positions = common * block_size // counted * counted
    tl.store(common_at + tile, positions)
    tl.store(begins_at + sequences, tl.zeros([padded_here], tl.int32) + positions, mask=is_there)


@dataclass(frozen=True, slots=True)
class FoundPrefixes:
    """What the sequences of a step have in common, by one KV group's tables."""

    order: Tensor  # int32 [tiles * num_here]
    common: Tensor  # int32 [tiles]
    begins: Tensor  # int32 [sequences]
    num_here: int  # sequences in a tile


def find_shared_prefixes(tables: Tensor, lengths: Tensor, block_size: int, group: int) -> FoundPrefixes:
    count, num_here = len(lengths), sequences_in_tile(group)
    # as many as there may be: groups of half a tile and a sequence take two each
    num_tiles = 2 * -(-count // num_here) + 1
    numbers = torch.empty((4, count), dtype=torch.int32, device=tables.device)
    names, sizes, ranks, begins = numbers.unbind()
    order = torch.full((num_tiles * num_here,), -1, dtype=torch.int32, device=tables.device)
    common = torch.empty(num_tiles, dtype=torch.int32, device=tables.device)
    column = min((DEPTH - 1) // block_size, tables.shape[1] - 1)
    here = 16
    programs, padded_sequences = (-(-count // here),), padded(count)
    group_kernel[programs](
        names, sizes, ranks, tables, lengths, count, tables.stride(0), column,
        depth=DEPTH, padded_sequences=padded_sequences, here=here,
    )  # fmt: skip
    order_kernel[programs](
        order, names, sizes, ranks, count,
        num_here=num_here, padded_sequences=padded_sequences, here=here,
    )  # fmt: skip
    common_kernel[(num_tiles,)](
        common, begins, order, tables, lengths, tables.stride(0),
        block_size=block_size, counted=COUNTED, num_here=num_here, padded_here=padded(num_here), columns_at_once=64,
    )  # fmt: skip
    return FoundPrefixes(order, common, begins, num_here)
