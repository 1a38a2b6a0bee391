"""Attention of decodes whose sequences begin alike, as those behind one system prompt do.

Such sequences have the same blocks in front. Sequences with the same block at some depth are put side by side, a tile
of them at a time, and what a tile has in common is read once for all of its rows, with tensor cores busy as in a
prompt; each sequence's own rest is read as in any decode. All of this is found on the device, from tables and lengths,
so that it can sit in a graph.
"""

from dataclasses import dataclass, field

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.triton.attend_keys import exponents, fold_keys, load_rows, padded, product_type
from quire.ops.triton.attend_split import PartsBefore, attend_split, choose_parts, share_tiles
from quire.ops.triton.overlap import overlap, wait_for_inputs

COUNTED = 128
"""Positions that sequences have in common count in multiples of this: tiles of all kernels divide it."""
DEPTH = 256
"""Positions by whose last block sequences are put side by side."""
MOST_PARTS = 8
"""Of what a tile has in common. Each writes a result for every row."""
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
    is_alike = (names[None, :] == my_names[:, None]) & (every < num_sequences)[None, :]
    is_before = is_alike & (every[None, :] < mine[:, None])
    tl.store(names_at + mine, my_names, mask=mine < num_sequences)
    tl.store(sizes_at + mine, tl.sum(is_alike.to(tl.int32), 1), mask=mine < num_sequences)
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


@triton.jit(do_not_specialize=["table_stride"])
def attend_common_kernel(
    mixed_at,  # float32 [sequences, heads, parts, head_dim]
    weights_at,  # float32 [sequences, heads, parts]
    query_at,
    keys_at,
    values_at,
    tables_at,
    order_at,
    common_at,
    query_stride,
    head_stride,
    slot_stride,
    table_stride,
    all_parts,
    inner,
    outer,
    capped: tl.constexpr,
    product: tl.constexpr,
    block_size: tl.constexpr,
    group: tl.constexpr,
    head_dim: tl.constexpr,
    padded_dim: tl.constexpr,
    num_here: tl.constexpr,
    num_rows: tl.constexpr,
    tile_size: tl.constexpr,
    overlapped: tl.constexpr,
):
    """softmax(query · keys) · values over one part of what a tile of sequences has in common."""
    wait_for_inputs(overlapped)
    kv_head = tl.program_id(0)
    tile = tl.program_id(1)
    part = tl.program_id(2)
    common = tl.load(common_at + tile)
    _, last_tile, tiles_each = share_tiles(0, common, tl.num_programs(2), 0, tile_size)
    begin_tile = part * tiles_each
    end_tile = tl.minimum(begin_tile + tiles_each, last_tile)
    if begin_tile >= end_tile:
        return  # the merge knows, by the same arithmetic

    rows = tl.arange(0, num_rows)
    places = order_at + tile * num_here + rows // group
    sequences = tl.load(places, mask=rows < num_here * group, other=-1).to(tl.int64)
    is_there = sequences >= 0
    heads = kv_head * group + rows % group
    query_rows = sequences * query_stride + heads * head_stride
    query = load_rows(query_at, query_rows, 1, is_there, True, head_dim, padded_dim).to(product)
    no_position = tl.zeros([num_rows], tl.int32)

    mixed = tl.zeros([num_rows, padded_dim], tl.float32)
    weight = tl.zeros([num_rows], tl.float32)
    largest = tl.full([num_rows], float("-inf"), tl.float32)
    table_at = tables_at + tl.load(order_at + tile * num_here).to(tl.int64) * table_stride
    keys_at += kv_head * head_dim
    values_at += kv_head * head_dim
    for index in range(begin_tile, end_tile):
        mixed, weight, largest = fold_keys(
            mixed, weight, largest, query, no_position, keys_at, values_at, table_at,
            index * tile_size, 0, common, slot_stride, inner, outer,
            False, 0, capped, product, block_size, head_dim, padded_dim, tile_size,
        )  # fmt: skip

    mixed = mixed / weight[:, None]
    results = (sequences * tl.num_programs(0) * group + heads) * all_parts + part
    dims = tl.arange(0, padded_dim)
    mask = is_there[:, None] & (dims < head_dim)[None, :]
    tl.store(mixed_at + results[:, None] * head_dim + dims[None, :], mixed, mask=mask)
    tl.store(weights_at + results, largest * outer + tl.log2(weight), mask=is_there)


@dataclass(frozen=True, slots=True)
class Beginnings:
    """What the sequences of a step have in common, by one KV group's tables."""

    order: Tensor  # int32 [tiles * num_here]
    common: Tensor  # int32 [tiles]
    begins: Tensor  # int32 [sequences]
    num_here: int  # sequences in a tile


def find_beginnings(tables: Tensor, lengths: Tensor, block_size: int, group: int) -> Beginnings:
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
    return Beginnings(order, common, begins, num_here)


@dataclass(frozen=True, slots=True)
class AttendBeginnings:
    """As `quire.ops.functional.paged_attention`, in one step of decodes, of which all layers ask the same instance."""

    _found: dict[int, Beginnings] = field(default_factory=dict)
    """By the tables of a KV group, where those are in memory."""

    def __call__(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        tables: Tensor,
        query_starts: Tensor,
        lengths: Tensor,
        *,
        scale: float,
        window: int | None = None,
        softcap: float | None = None,
    ) -> Tensor:
        assert len(query) == len(lengths), "one new token a sequence"
        output = torch.empty(query.shape, dtype=query.dtype, device=query.device)
        before = None
        if window is None:  # which of a sequence's beginning a window sees differs from sequence to sequence
            before = self._parts_before(query, keys, values, tables, lengths, scale, softcap)
        attend_split(output, query, keys, values, tables, lengths, scale, window, softcap, before)
        return output

    def _parts_before(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        tables: Tensor,
        lengths: Tensor,
        scale: float,
        softcap: float | None,
    ) -> PartsBefore:
        _, num_heads, head_dim = query.shape
        _, block_size, num_kv_heads, _ = keys.shape
        group = num_heads // num_kv_heads
        found = self._found.get(tables.data_ptr())
        if found is None:
            found = self._found[tables.data_ptr()] = find_beginnings(tables, lengths, block_size, group)
        num_full_tiles = -(-len(query) // found.num_here)
        count = choose_parts(query.device, 1, num_kv_heads * num_full_tiles, MOST_PARTS)
        tile = 64 if head_dim <= 128 else 32
        inner, outer = exponents(scale, softcap)

        def attend(mixed: Tensor, weights: Tensor) -> None:
            attend_common_kernel[(num_kv_heads, len(found.common), count)](
                mixed,
                weights,
                query,
                keys,
                values,
                tables,
                found.order,
                found.common,
                query.stride(0),
                query.stride(1),
                keys.stride(1),
                tables.stride(0),
                mixed.shape[2],
                inner,
                outer,
                capped=softcap is not None,
                product=product_type(keys),
                block_size=block_size,
                group=group,
                head_dim=head_dim,
                padded_dim=padded(head_dim),
                num_here=found.num_here,
                num_rows=padded(found.num_here * group),
                tile_size=tile,
                num_warps=4,
                num_stages=3,
                **overlap(query),
            )

        return PartsBefore(found.begins, tile, count, attend)
