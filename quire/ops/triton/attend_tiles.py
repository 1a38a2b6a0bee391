"""Attention of any mixture of prompts, chunks and decodes in one launch.

A program takes one tile of rows: some new tokens of one sequence, with all the query heads that share one KV head,
token after token. Which tokens those are it finds itself, so that the grid depends on nothing but shapes.
"""

from typing import NamedTuple

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
from quire.ops.triton.card import Card, card_of, fitting_positions
from quire.ops.triton.find_tile import find_tile
from quire.ops.triton.staged import launch_staged


class Tiling(NamedTuple):
    """What a program computes at a time, and how the compiler is to spread it."""

    rows: int  # tokens × heads of a group
    positions: int
    num_warps: int
    num_stages: int  # 3 and 4 keep one tile of the cache in flight, 5 two: its table goes ahead of it by as much


def choose_tiling(card: Card, num_tokens: int, num_sequences: int, group: int, head_dim: int, itemsize: int) -> Tiling:
    """By the rows of a sequence of average length: its KV is read once for each tile of rows."""
    tiling = _measured_tiling(num_tokens, num_sequences, group, head_dim, itemsize)
    query = tiling.rows * head_dim * itemsize
    fits = fitting_positions(card, tiling.positions, 2 * head_dim * itemsize, tiling.num_stages, query)
    return tiling._replace(positions=fits)


def _measured_tiling(num_tokens: int, num_sequences: int, group: int, head_dim: int, itemsize: int) -> Tiling:
    if itemsize == 4:  # exact float32 has no tensor cores; it is here to be right
        return Tiling(padded(group), 32, 4, 1)
    rows = num_tokens * group // num_sequences
    if rows <= 32:  # drafts to verify, or a chunk beside many decodes: bound by memory as decodes are
        return Tiling(padded(rows), 64 if head_dim <= 128 else 32, 4, 5)
    # 64 rows are what a warpgroup of Hopper multiplies at once. With heads of 128, an H200 reaches 331 TFLOP/s so; two
    # warpgroups on 128 rows reach 301 at best, and 267 with a third stage.
    return Tiling(max(64, padded(group)), 64, 4, 2)


@triton.jit(do_not_specialize=["num_sequences", "table_stride"])
def attend_tiles_kernel(
    output_at,
    query_at,
    keys_at,
    values_at,  # of fp8, in pairs
    scales_at,  # float32 [2]: what keys and values in fp8 were divided by; None: nothing
    tables_at,
    starts_at,
    lengths_at,
    sinks_at,  # float32 [heads]; None: there are none
    num_sequences,
    output_stride,  # of tokens
    query_stride,
    head_stride,  # of the query
    slot_stride,
    table_stride,
    inner,
    outer,
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
):
    """softmax(query · keys) · values, for the query rows of one tile and one KV head."""
    tile_tokens: tl.constexpr = num_rows // group
    # the last tokens of a prompt see the most: begin with them, so that what runs last is short
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    kv_head = tl.program_id(1)
    sequence, start, num_new, first_token = find_tile(tile, starts_at, num_sequences, tile_tokens)
    if first_token >= num_new:
        return

    rows = tl.arange(0, num_rows)
    tokens = first_token + rows // group
    row_is_there = (tokens < num_new) & (rows < tile_tokens * group)
    heads = kv_head * group + rows % group
    query_rows = (start + tokens) * query_stride + heads * head_stride
    query = load_rows(query_at, query_rows, 1, row_is_there, True, head_dim, padded_dim)
    query = dot_query(query, dot_type, fp8)

    num_old = tl.load(lengths_at + sequence).to(tl.int32) - num_new
    query_positions = num_old + tokens
    first_position = num_old + first_token
    end = num_old + tl.minimum(first_token + tile_tokens, num_new)
    begin = 0
    open_from = 0  # every row sees every position from here on ...
    if window != 0:
        begin = first_seen(first_position, window)
        open_from = tl.cdiv(first_seen(end - 1, window), tile_size) * tile_size
    open_to = tl.maximum((first_position + 1) // tile_size * tile_size, open_from)  # ... up to here

    inner, outer = scaled_exponents(inner, outer, scales_at, capped)
    mixed, mixed_odd = nothing_mixed(num_rows, padded_dim, fp8)
    weight = tl.zeros([num_rows], tl.float32)
    largest = tl.full([num_rows], float("-inf"), tl.float32)
    table_at = tables_at + tl.cast(sequence, tl.int64) * table_stride
    keys_at += kv_head * head_dim
    values_at += kv_head * (head_dim if fp8 == "" else head_dim // 2)
    if window != 0:
        for first in range(begin // tile_size * tile_size, tl.minimum(open_from, end), tile_size):
            mixed, mixed_odd, weight, largest = fold_keys(
                mixed, mixed_odd, weight, largest, query, query_positions, keys_at, values_at, table_at,
                first, begin, end, slot_stride, inner, outer,
                True, window, capped, dot_type, fp8, block_size, head_dim, padded_dim, tile_size,
            )  # fmt: skip
    for first in range(open_from, open_to, tile_size):
        mixed, mixed_odd, weight, largest = fold_keys(
            mixed, mixed_odd, weight, largest, query, query_positions, keys_at, values_at, table_at,
            first, begin, end, slot_stride, inner, outer,
            False, window, capped, dot_type, fp8, block_size, head_dim, padded_dim, tile_size,
        )  # fmt: skip
    for first in range(open_to, end, tile_size):
        mixed, mixed_odd, weight, largest = fold_keys(
            mixed, mixed_odd, weight, largest, query, query_positions, keys_at, values_at, table_at,
            first, begin, end, slot_stride, inner, outer,
            True, window, capped, dot_type, fp8, block_size, head_dim, padded_dim, tile_size,
        )  # fmt: skip

    mixed = mean_of(mixed, mixed_odd, tl.where(weight == 0.0, 1.0, weight), scales_at, fp8)
    if sinks_at is not None:
        mixed *= share_beside(sinks_at, heads, row_is_there, largest * outer + tl.log2(weight))[:, None]
    dims = tl.arange(0, padded_dim)
    places = output_at + (start + tokens)[:, None] * output_stride + heads[:, None] * head_dim + dims[None, :]
    tl.store(places, mixed.to(output_at.dtype.element_ty), mask=row_is_there[:, None] & (dims < head_dim)[None, :])


def attend_tiles(
    output: Tensor,
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    tables: Tensor,
    query_starts: Tensor,
    lengths: Tensor,
    scale: float,
    window: int | None,
    softcap: float | None,
    scales: Tensor | None = None,
    sinks: Tensor | None = None,
    chunk: int | None = None,
) -> None:
    """`paged_attention` into a contiguous `output`."""
    num_tokens, num_heads, head_dim = query.shape
    num_sequences, num_kv_heads = len(lengths), keys.shape[2]
    group = num_heads // num_kv_heads
    tiling = choose_tiling(card_of(query.device), num_tokens, num_sequences, group, head_dim, keys.element_size())
    inner, outer = exponents(scale, softcap)
    tensors = (output, query, keys, paired_values(values), scales, tables, query_starts, lengths, sinks)
    strides = (output.stride(0), query.stride(0), query.stride(1), keys.stride(1), tables.stride(0))
    settings = {
        "window": reach_of(window, chunk),
        "capped": softcap is not None,
        "dot_type": dot_type_of(keys),
        "fp8": fp8_of(keys),
        "block_size": keys.shape[1],
        "group": group,
        "head_dim": head_dim,
        "padded_dim": padded_head(head_dim, keys),
        "num_rows": tiling.rows,
        "tile_size": tiling.positions,
        "num_warps": tiling.num_warps,
        "num_stages": tiling.num_stages,
    }
    grid = (num_tokens // (tiling.rows // group) + num_sequences, num_kv_heads)
    arguments = (*tensors, num_sequences, *strides, inner, outer)
    launch_staged(attend_tiles_kernel, grid, arguments, settings, "num_stages")
