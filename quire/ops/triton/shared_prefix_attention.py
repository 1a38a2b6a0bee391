"""Attention of decodes whose sequences share prefixes, as those after one system prompt do.

The prefix that a tile of sequences shares is read once for all of its rows, with tensor cores busy as in a prompt; each
sequence's own rest is read as in any decode. Grids depend on shapes alone, so that it can sit in a graph.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.step_tensors import PrefixTiles
from quire.ops.triton.attend_keys import (
    dot_query,
    dot_type_of,
    exponents,
    fold_keys,
    fp8_of,
    load_rows,
    mean_of,
    nothing_mixed,
    padded,
    padded_head,
    paired_values,
    scaled_exponents,
)
from quire.ops.triton.attend_split import PartsBefore, attend_split, choose_parts, share_tiles
from quire.ops.triton.overlap import overlap, wait_for_inputs
from quire.ops.triton.staged import launch_staged

MOST_PARTS = 8
"""Of the prefix that a tile shares. Each writes a result for every row."""
MOST_ROWS = 64
MOST_MEMBERS = 32
"""Rows (a sequence's heads of one KV head each) and sequences of a tile. 64 rows are what a warpgroup of Hopper
multiplies at once; an H200 computes tiles of 128 slower."""


def most_members(group: int) -> int:
    """Sequences of a tile, where so many query heads share a KV head."""
    return max(1, min(MOST_MEMBERS, MOST_ROWS // group))


@triton.jit(do_not_specialize=["table_stride"])
def attend_prefix_kernel(
    mixed_at,  # float32 [sequences, heads, parts, head_dim]
    weights_at,  # float32 [sequences, heads, parts]
    query_at,
    keys_at,
    values_at,  # of fp8, in pairs
    scales_at,  # float32 [2]: what keys and values in fp8 were divided by; None: nothing
    tables_at,
    members_at,  # as in `PrefixTiles`
    prefixes_at,
    query_stride,
    head_stride,
    slot_stride,
    table_stride,
    all_parts,
    inner,
    outer,
    capped: tl.constexpr,
    dot_type: tl.constexpr,
    fp8: tl.constexpr,
    block_size: tl.constexpr,
    group: tl.constexpr,
    head_dim: tl.constexpr,
    padded_dim: tl.constexpr,
    most_members: tl.constexpr,
    num_rows: tl.constexpr,
    tile_size: tl.constexpr,
    overlapped: tl.constexpr,
):
    """softmax(query · keys) · values over one part of the prefix that a tile of sequences shares."""
    wait_for_inputs(overlapped)
    kv_head = tl.program_id(0)
    tile = tl.program_id(1)
    part = tl.program_id(2)
    prefix = tl.load(prefixes_at + tile)
    _, last_tile, tiles_each = share_tiles(0, prefix, tl.num_programs(2), 0, tile_size)
    begin_tile = part * tiles_each
    end_tile = tl.minimum(begin_tile + tiles_each, last_tile)
    if begin_tile >= end_tile:
        return  # the merge knows, by the same arithmetic

    rows = tl.arange(0, num_rows)
    places = members_at + tile * most_members + rows // group
    sequences = tl.load(places, mask=rows < most_members * group, other=-1).to(tl.int64)
    is_there = sequences >= 0
    heads = kv_head * group + rows % group
    query_rows = sequences * query_stride + heads * head_stride
    query = load_rows(query_at, query_rows, 1, is_there, True, head_dim, padded_dim)
    query = dot_query(query, dot_type, fp8)
    no_position = tl.zeros([num_rows], tl.int32)

    inner, outer = scaled_exponents(inner, outer, scales_at, capped)
    mixed, mixed_odd = nothing_mixed(num_rows, padded_dim, fp8)
    weight = tl.zeros([num_rows], tl.float32)
    largest = tl.full([num_rows], float("-inf"), tl.float32)
    table_at = tables_at + tl.load(members_at + tile * most_members).to(tl.int64) * table_stride
    keys_at += kv_head * head_dim
    values_at += kv_head * (head_dim if fp8 == "" else head_dim // 2)
    for index in range(begin_tile, end_tile):
        mixed, mixed_odd, weight, largest = fold_keys(
            mixed, mixed_odd, weight, largest, query, no_position, keys_at, values_at, table_at,
            index * tile_size, 0, prefix, slot_stride, inner, outer,
            False, 0, capped, dot_type, fp8, block_size, head_dim, padded_dim, tile_size,
        )  # fmt: skip

    mixed = mean_of(mixed, mixed_odd, weight, scales_at, fp8)
    results = (sequences * tl.num_programs(0) * group + heads) * all_parts + part
    dims = tl.arange(0, padded_dim)
    mask = is_there[:, None] & (dims < head_dim)[None, :]
    tl.store(mixed_at + results[:, None] * head_dim + dims[None, :], mixed, mask=mask)
    tl.store(weights_at + results, largest * outer + tl.log2(weight), mask=is_there)


def shared_prefix_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    tables: Tensor,
    query_starts: Tensor,
    lengths: Tensor,
    tiles: PrefixTiles,
    scale: float,
    window: int | None,
    softcap: float | None,
    scales: Tensor | None = None,
    sinks: Tensor | None = None,
    chunk: int | None = None,
) -> Tensor:
    """See `quire.ops.functional.shared_prefix_attention`."""
    assert len(query) == len(lengths), "one new token a sequence"
    output = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    before = None
    # which of a prefix a window sees differs from sequence to sequence; until it is known what goes wrong with fp8
    # (`padded_head`), each sequence reads its own
    if window is None and chunk is None and fp8_of(keys) != "ptx":
        before = _parts_before(query, keys, values, tables, tiles, scale, softcap, scales)
    how = (scale, window, softcap, scales, sinks, chunk)
    attend_split(output, query, keys, values, tables, lengths, *how, before)
    return output


def _parts_before(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    tables: Tensor,
    tiles: PrefixTiles,
    scale: float,
    softcap: float | None,
    scales: Tensor | None,
) -> PartsBefore:
    _, num_heads, head_dim = query.shape
    _, block_size, num_kv_heads, _ = keys.shape
    group = num_heads // num_kv_heads
    num_tiles, most_members = tiles.members.shape
    num_full_tiles = -(-len(query) // most_members)
    count = choose_parts(query.device, 1, num_kv_heads * num_full_tiles, MOST_PARTS)
    tile = 64 if head_dim <= 128 else 32
    inner, outer = exponents(scale, softcap)

    def attend(mixed: Tensor, weights: Tensor) -> None:
        tensors = (mixed, weights, query, keys, paired_values(values), scales, tables, tiles.members, tiles.lengths)
        strides = (query.stride(0), query.stride(1), keys.stride(1), tables.stride(0))
        settings = {
            "capped": softcap is not None,
            "dot_type": dot_type_of(keys),
            "fp8": fp8_of(keys),
            "block_size": block_size,
            "group": group,
            "head_dim": head_dim,
            "padded_dim": padded_head(head_dim, keys),
            "most_members": most_members,
            "num_rows": padded(most_members * group),
            "tile_size": tile,
            "num_warps": 4,
            "num_stages": 3,
            **overlap(query),
        }
        grid = (num_kv_heads, num_tiles, count)
        arguments = (*tensors, *strides, mixed.shape[2], inner, outer)
        launch_staged(attend_prefix_kernel, grid, arguments, settings, "num_stages")

    return PartsBefore(tiles.shared, tile, count, attend)
