"""Attention of one new token a sequence, each over its KV in parts that are computed at once and merged.

A decode reads all of a sequence's KV for a handful of rows, so what counts is that every multiprocessor reads. How
many parts there are depends on shapes alone; which positions they hold, on each sequence's own length.
"""

import sys
from collections.abc import Callable
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.triton.attend_keys import (
    dot_query,
    dot_type_of,
    exponents,
    first_seen,
    fold_keys,
    fp8_of,
    load_rows,
    mean_of,
    nothing_mixed,
    padded,
    padded_head,
    paired_values,
    reach_of,
    scaled_exponents,
    share_beside,
)
from quire.ops.triton.card import MEASURED_MULTIPROCESSORS, Card, card_of, fitting_positions
from quire.ops.triton.overlap import overlap, wait_for_inputs
from quire.ops.triton.staged import launch_staged

MOST_PARTS = 64
"""Merging reads all parts at once, into registers."""


class SplitTiling(NamedTuple):
    """What a program reads at a time, how the compiler is to spread it, and how many programs there should be."""

    positions: int
    num_warps: int
    num_stages: int  # 3 and 4 keep one tile of the cache in flight, 5 two: its table goes ahead of it by as much
    programs: int
    """For each multiprocessor. Three or four fit at a time; the rest evens out unlike lengths. The scheduler has the
    longest sequences first, so that those at the end are short."""


def choose_split_tiling(card: Card, num_sequences: int, num_rows: int, head_dim: int, itemsize: int) -> SplitTiling:
    """By the rows of a KV head's query heads, and the size of what is read. Measured on an H200: on other cards by the
    sequences that a multiprocessor has, and with smaller tiles where memory is short.
    """
    sequences = num_sequences * MEASURED_MULTIPROCESSORS // card.multiprocessors
    tiling = _measured_tiling(sequences, num_rows, head_dim, itemsize)
    fits = fitting_positions(card, tiling.positions, 2 * head_dim * itemsize, tiling.num_stages)
    return tiling._replace(positions=fits)


def _measured_tiling(num_sequences: int, num_rows: int, head_dim: int, itemsize: int) -> SplitTiling:
    num_warps = 4 if num_rows <= 64 else 8
    if itemsize == 4:  # more stages would spill kilobytes
        return SplitTiling(32, num_warps, 1, 4)
    if head_dim > 128:
        return SplitTiling(32, num_warps, 3 if num_sequences >= 8 else 2, 4)
    if num_sequences < 8:  # few parts for many multiprocessors: small ones
        return SplitTiling(32, num_warps, 2, 8)
    if num_sequences < 24:
        return SplitTiling(64, num_warps, 2, 16)
    if num_sequences <= 96:
        return SplitTiling(128, num_warps, 3, 8)
    return SplitTiling(64, num_warps, 3, 4)  # one part each: what evens out lengths is that the longest come first


def multiprocessors(device: torch.device) -> int:
    """Of a GPU; for the interpreter a few, so that tests split too."""
    return card_of(device).multiprocessors if device.type == "cuda" else 4


def choose_parts(device: torch.device, wanted: int, num_programs: int, most_tiles: int) -> int:
    """How many parts give each multiprocessor `wanted` programs, of `num_programs` a part, and may be not empty."""
    return max(1, min(wanted * multiprocessors(device) // num_programs, most_tiles, MOST_PARTS))


@triton.jit
def share_tiles(begin, length, num_parts, window: tl.constexpr, tile_size: tl.constexpr):
    """The first tile from `begin` on that the last position sees, the one behind the last, and how many a part takes.

    `begin` is a multiple of the tile's size.
    """
    first = begin // tile_size
    if window != 0:
        first = first_seen(tl.maximum(length - 1, 0), window) // tile_size
    last = tl.cdiv(length, tile_size)
    return first, last, tl.cdiv(last - first, num_parts)


@triton.jit(do_not_specialize=["table_stride"])
def attend_part_kernel(
    mixed_at,  # the output, where the only part is the whole; else float32 [sequences, heads, parts, head_dim]
    weights_at,  # float32 [sequences, heads, parts]: log2 of the sum that a part's softmax was divided by
    query_at,
    keys_at,
    values_at,  # of fp8, in pairs
    scales_at,  # float32 [2]: what keys and values in fp8 were divided by; None: nothing
    tables_at,
    lengths_at,
    begins_at,  # int32 [sequences]: positions before these are attended to elsewhere, in `parts_before` parts
    sinks_at,  # float32 [heads], of use where this part is the whole; None: there are none
    query_stride,  # of tokens
    head_stride,  # of the query
    slot_stride,
    table_stride,
    inner,
    outer,
    parts_before: tl.constexpr,
    whole: tl.constexpr,
    window: tl.constexpr,
    capped: tl.constexpr,
    dot_type: tl.constexpr,
    fp8: tl.constexpr,
    block_size: tl.constexpr,
    group: tl.constexpr,
    head_dim: tl.constexpr,
    padded_dim: tl.constexpr,
    num_rows: tl.constexpr,
    tile_size: tl.constexpr,
    overlapped: tl.constexpr,
):
    """softmax(query · keys) · values over one part of a sequence's KV, for the heads that share one KV head."""
    wait_for_inputs(overlapped)
    kv_head = tl.program_id(0)  # heads of a slot lie side by side: read them at about the same time
    sequence = tl.program_id(1).to(tl.int64)
    part = tl.program_id(2)
    num_parts = tl.num_programs(2)
    length = tl.load(lengths_at + sequence).to(tl.int32)
    begin = 0
    if parts_before > 0:
        begin = tl.load(begins_at + sequence)
    first_tile, last_tile, tiles_each = share_tiles(begin, length, num_parts, window, tile_size)
    begin_tile = first_tile + part * tiles_each
    end_tile = tl.minimum(begin_tile + tiles_each, last_tile)
    if not whole and begin_tile >= end_tile:
        return  # the merge knows, by the same arithmetic

    rows = tl.arange(0, num_rows)
    heads = kv_head * group + rows
    query_rows = sequence * query_stride + heads * head_stride
    query = load_rows(query_at, query_rows, 1, rows < group, True, head_dim, padded_dim)
    query = dot_query(query, dot_type, fp8)
    query_positions = tl.zeros([num_rows], tl.int32) + (length - 1)
    if window != 0:
        begin = first_seen(tl.maximum(length - 1, 0), window)

    inner, outer = scaled_exponents(inner, outer, scales_at, capped)
    mixed, mixed_odd = nothing_mixed(num_rows, padded_dim, fp8)
    weight = tl.zeros([num_rows], tl.float32)
    largest = tl.full([num_rows], float("-inf"), tl.float32)
    table_at = tables_at + sequence * table_stride
    keys_at += kv_head * head_dim
    values_at += kv_head * (head_dim if fp8 == "" else head_dim // 2)
    # masks cost nothing beside the reading, and one loop keeps tiles in flight where two would run dry in between
    for tile in range(begin_tile, end_tile):
        mixed, mixed_odd, weight, largest = fold_keys(
            mixed, mixed_odd, weight, largest, query, query_positions, keys_at, values_at, table_at,
            tile * tile_size, begin, length, slot_stride, inner, outer,
            True, window, capped, dot_type, fp8, block_size, head_dim, padded_dim, tile_size,
        )  # fmt: skip

    # a sequence of length 0 gives zeros
    mixed = mean_of(mixed, mixed_odd, tl.where(weight == 0.0, 1.0, weight), scales_at, fp8)
    if whole and sinks_at is not None:
        mixed *= share_beside(sinks_at, heads, rows < group, largest * outer + tl.log2(weight))[:, None]
    results = (sequence * tl.num_programs(0) * group + heads) * (parts_before + num_parts) + parts_before + part
    dims = tl.arange(0, padded_dim)
    tl.store(
        mixed_at + results[:, None] * head_dim + dims[None, :],
        mixed.to(mixed_at.dtype.element_ty),
        mask=(rows < group)[:, None] & (dims < head_dim)[None, :],
    )
    if not whole:
        shift = tl.where(largest == float("-inf"), 0.0, largest * outer)
        tl.store(weights_at + results, shift + tl.log2(weight), mask=rows < group)


@triton.jit(do_not_specialize=["num_parts"])
def merge_parts_kernel(
    output_at,
    mixed_at,
    weights_at,
    lengths_at,
    begins_at,
    sinks_at,
    num_parts,
    parts_before: tl.constexpr,
    tile_before: tl.constexpr,
    window: tl.constexpr,
    head_dim: tl.constexpr,
    padded_dim: tl.constexpr,
    padded_parts: tl.constexpr,
    tile_size: tl.constexpr,
    overlapped: tl.constexpr,
):
    """The mean of what parts found for one head of one sequence, each by the weight of its positions."""
    wait_for_inputs(overlapped)
    sequence = tl.program_id(1).to(tl.int64)
    head = sequence * tl.num_programs(0) + tl.program_id(0)
    length = tl.load(lengths_at + sequence).to(tl.int32)
    parts = tl.arange(0, padded_parts)
    begin = 0
    is_used = parts < 0
    if parts_before > 0:
        begin = tl.load(begins_at + sequence)
        _, tiles_before, tiles_each = share_tiles(0, begin, parts_before, 0, tile_before)
        is_used = (parts < parts_before) & (parts * tiles_each < tiles_before)
    first_tile, last_tile, tiles_each = share_tiles(begin, length, num_parts, window, tile_size)
    own = parts - parts_before
    is_used |= (own >= 0) & (own < num_parts) & (first_tile + own * tiles_each < last_tile)  # no one wrote the others
    results = head * (parts_before + num_parts) + parts
    weights = tl.load(weights_at + results, mask=is_used, other=float("-inf"))
    largest = tl.max(weights, 0)
    weights = tl.exp2(weights - tl.where(largest == float("-inf"), 0.0, largest))

    dims = tl.arange(0, padded_dim)
    places = mixed_at + results[:, None] * head_dim + dims[None, :]
    mixed = tl.load(places, mask=is_used[:, None] & (dims < head_dim)[None, :], other=0.0)
    weight = tl.sum(weights, 0)
    mean = tl.sum(mixed * weights[:, None], 0) / tl.where(weight == 0.0, 1.0, weight)
    if sinks_at is not None:
        mean *= share_beside(sinks_at, tl.program_id(0), tl.program_id(0) >= 0, largest + tl.log2(weight))
    tl.store(output_at + head * head_dim + dims, mean.to(output_at.dtype.element_ty), mask=dims < head_dim)


class PartsBefore(NamedTuple):
    """What attends to the first positions of each sequence, before its own parts."""

    begins: Tensor  # int32 [sequences]: how many positions that are, a multiple of `tile`
    tile: int
    num_parts: int
    """They may be empty: they share tiles as `share_tiles` has it."""
    attend: Callable[[Tensor, Tensor], None]
    """Writes the first `num_parts` parts of `mixed` and `weights` as `attend_part_kernel` writes its own."""


def attend_split(
    output: Tensor,
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    tables: Tensor,
    lengths: Tensor,
    scale: float,
    window: int | None,
    softcap: float | None,
    scales: Tensor | None = None,
    sinks: Tensor | None = None,
    chunk: int | None = None,
    before: PartsBefore | None = None,
) -> None:
    """`paged_attention` into a contiguous `output`, for steps in which each sequence has exactly one new token.

    With `before` there is no window, and there are no chunks.
    """
    num_sequences, num_heads, head_dim = query.shape
    _, block_size, num_kv_heads, _ = keys.shape
    group = num_heads // num_kv_heads
    num_rows, padded_dim = padded(group), padded_head(head_dim, keys)
    tiling = choose_split_tiling(card_of(query.device), num_sequences, num_rows, head_dim, keys.element_size())
    tile = tiling.positions
    most_positions = min(tables.shape[1] * block_size, window or chunk or sys.maxsize)
    own_parts = choose_parts(query.device, tiling.programs, num_sequences * num_kv_heads, -(-most_positions // tile))
    parts_before = before.num_parts if before is not None else 0
    num_parts = parts_before + own_parts
    inner, outer = exponents(scale, softcap)
    if num_parts == 1:
        mixed = weights = output
    else:
        mixed = torch.empty(num_sequences, num_heads, num_parts, head_dim, dtype=torch.float32, device=query.device)
        weights = torch.empty(num_sequences, num_heads, num_parts, dtype=torch.float32, device=query.device)
    if before is not None:
        before.attend(mixed, weights)
    begins = before.begins if before is not None else lengths  # of no use there
    tensors = (mixed, weights, query, keys, paired_values(values), scales, tables, lengths, begins, sinks)
    strides = (query.stride(0), query.stride(1), keys.stride(1), tables.stride(0))
    settings = {
        "parts_before": parts_before,
        "whole": num_parts == 1,
        "window": reach_of(window, chunk),
        "capped": softcap is not None,
        "dot_type": dot_type_of(keys),
        "fp8": fp8_of(keys),
        "block_size": block_size,
        "group": group,
        "head_dim": head_dim,
        "padded_dim": padded_dim,
        "num_rows": num_rows,
        "tile_size": tile,
        "num_warps": tiling.num_warps,
        "num_stages": tiling.num_stages,
        **overlap(query),
    }
    grid = (num_kv_heads, num_sequences, own_parts)
    launch_staged(attend_part_kernel, grid, (*tensors, *strides, inner, outer), settings, "num_stages")
    if num_parts > 1:
        padded_parts = 1 << (num_parts - 1).bit_length()
        merge_parts_kernel[(num_heads, num_sequences)](
            output,
            mixed,
            weights,
            lengths,
            begins,
            sinks,
            own_parts,
            parts_before=parts_before,
            tile_before=before.tile if before is not None else 1,
            window=reach_of(window, chunk),
            head_dim=head_dim,
            padded_dim=padded_dim,
            padded_parts=padded_parts,
            tile_size=tile,
            num_warps=1 if padded_parts <= 16 else 4,
            **overlap(query),
        )
