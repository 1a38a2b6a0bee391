"""paged_attention whose result for a token depends on its own sequence alone, bit for bit.

Neither the batch, nor how a prompt was cut into chunks, nor whether its beginning came from the prefix cache changes
in which order anything is summed up:
- A position's KV is always in the same tile of 64 positions, and tiles are folded in their order.
- Tiles make up parts, which begin and end at positions that follow from the query's own position, and the results of
  parts are merged in their order, by one program or by many.
- Decodes and prompts use one kernel with tiles of the same size: they need the same instructions.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.triton.attend_keys import dot_type_of, exponents, fold_keys, load_rows, nothing_mixed, padded
from quire.ops.triton.attend_split import multiprocessors
from quire.ops.triton.overlap import overlap, wait_for_inputs
from quire.ops.triton.staged import launch_staged

_TILE = 64
_LEAST_ROWS = 64
"""Of a tile: tokens × heads of a group. What a warpgroup of Hopper multiplies at once. A decode fills few of them; with
tiles of 16 rows it gets the same bits, but no faster."""
_PROGRAMS = 8
"""Of decodes, for each multiprocessor."""
_SMALLEST_PART = tl.constexpr(256)
_MOST_PARTS = tl.constexpr(16)
_DOUBLINGS = tl.constexpr(12)
"""Parts grow with the positions to be seen, so that there are never more than `_MOST_PARTS` of 16 million positions."""


@triton.jit
def _part_size(end):
    """Positions of a part, for a tile of queries that ends at most at `end`.

    Sizes change at multiples of 4096 positions. Tiles of queries are aligned to their own size, a power of two, so all
    rows of a tile have parts of one size.
    """
    size = _SMALLEST_PART
    for doubling in tl.static_range(_DOUBLINGS):
        size = tl.where(end > (_SMALLEST_PART * _MOST_PARTS << doubling), _SMALLEST_PART << (doubling + 1), size)
    return size


@triton.jit
def _merge(mixed, weight, largest, part_mixed, part_weight, part_largest, outer):
    """The state of a softmax with that of another part taken in.

    Multiply-adds are spelled out: left to compilers, two kernels might fuse another product with the sum.
    """
    new_largest = tl.maximum(largest, part_largest)
    subtracted = tl.where(new_largest == float("-inf"), 0.0, new_largest)
    kept = tl.exp2((largest - subtracted) * outer)
    added = tl.exp2((part_largest - subtracted) * outer)
    weight = tl.fma(weight, kept, part_weight * added)
    kept, added = tl.broadcast_to(kept[:, None], mixed.shape), tl.broadcast_to(added[:, None], mixed.shape)
    mixed = tl.fma(mixed, kept, part_mixed * added)
    return mixed, weight, new_largest


@triton.jit
def _mean(mixed, weight):
    """Zeros for a row that saw nothing."""
    return mixed / tl.where(weight == 0.0, 1.0, weight)[:, None]


@triton.jit(do_not_specialize=["num_sequences", "table_stride"])
def _attend(
    output_at,
    mixed_at,  # float32 [sequences, heads, parts, head_dim], where programs share the parts of a sequence
    weights_at,  # float32 [2, sequences, heads, parts]: sums of weights, and largest scores
    query_at,
    keys_at,
    values_at,
    tables_at,
    starts_at,
    lengths_at,
    num_sequences,
    output_stride,  # of tokens
    query_stride,
    head_stride,  # of the query
    slot_stride,
    table_stride,
    inner,
    outer,
    decodes: tl.constexpr,  # one new token a sequence
    whole: tl.constexpr,  # a program takes all parts of its rows
    window: tl.constexpr,
    capped: tl.constexpr,
    dot_type: tl.constexpr,
    block_size: tl.constexpr,
    group: tl.constexpr,
    head_dim: tl.constexpr,
    padded_dim: tl.constexpr,
    num_rows: tl.constexpr,
    tile_tokens: tl.constexpr,
    tile_size: tl.constexpr,
    overlapped: tl.constexpr,
):
    """softmax(query · keys) · values, for the query rows of one tile and one KV head."""
    wait_for_inputs(overlapped)
    kv_head = tl.program_id(0)
    if decodes:
        sequence = tl.program_id(1)
        start = sequence.to(tl.int64)
        num_new = 1
        length = tl.load(lengths_at + sequence).to(tl.int32)
        first = (length - 1) // tile_tokens * tile_tokens
    else:
        # the last tokens of a prompt see the most: begin with them, so that what runs last is short
        tile = tl.num_programs(1) - 1 - tl.program_id(1)
        sequence, start, num_new, length, first = _tile_of_prompt(
            tile, starts_at, lengths_at, num_sequences, tile_tokens
        )
        if first >= length:
            return

    rows = tl.arange(0, num_rows)
    positions = first + rows // group
    tokens = positions - (length - num_new)
    row_is_there = (tokens >= 0) & (tokens < num_new) & (rows < tile_tokens * group)
    heads = kv_head * group + rows % group
    query_rows = (start + tokens) * query_stride + heads * head_stride
    query = load_rows(query_at, query_rows, 1, row_is_there, True, head_dim, padded_dim).to(dot_type)

    end = tl.minimum(first + tile_tokens, length)
    begin = 0
    if window > 0:
        begin = tl.maximum(tl.maximum(first, length - num_new) - window + 1, 0)
    part_size = _part_size(first + tile_tokens)
    mixed = tl.zeros([num_rows, padded_dim], tl.float32)
    weight = tl.zeros([num_rows], tl.float32)
    largest = tl.full([num_rows], float("-inf"), tl.float32)
    table_at = tables_at + tl.cast(sequence, tl.int64) * table_stride
    keys_at += kv_head * head_dim
    values_at += kv_head * head_dim
    dims = tl.arange(0, padded_dim)
    is_result = row_is_there[:, None] & (dims < head_dim)[None, :]
    for part in range(begin // part_size + tl.program_id(2), tl.cdiv(end, part_size), tl.num_programs(2)):
        part_mixed, no_odd = nothing_mixed(num_rows, padded_dim, "")
        part_weight = tl.zeros([num_rows], tl.float32)
        part_largest = tl.full([num_rows], float("-inf"), tl.float32)
        from_tile = tl.maximum(part * part_size, begin // tile_size * tile_size)
        for at in range(from_tile, tl.minimum((part + 1) * part_size, end), tile_size):
            part_mixed, no_odd, part_weight, part_largest = fold_keys(
                part_mixed, no_odd, part_weight, part_largest, query, positions, keys_at, values_at, table_at,
                at, begin, end, slot_stride, inner, outer,
                True, window, capped, dot_type, "", block_size, head_dim, padded_dim, tile_size,
            )  # fmt: skip
        if whole:
            mixed, weight, largest = _merge(mixed, weight, largest, part_mixed, part_weight, part_largest, outer)
        else:
            results = (tl.cast(sequence, tl.int64) * tl.num_programs(0) * group + heads) * _MOST_PARTS + part
            tl.store(mixed_at + results[:, None] * head_dim + dims[None, :], part_mixed, mask=is_result)
            all_results = tl.cast(num_sequences, tl.int64) * tl.num_programs(0) * group * _MOST_PARTS
            tl.store(weights_at + results, part_weight, mask=row_is_there)
            tl.store(weights_at + all_results + results, part_largest, mask=row_is_there)
    if whole:
        places = output_at + (start + tokens)[:, None] * output_stride + heads[:, None] * head_dim + dims[None, :]
        tl.store(places, _mean(mixed, weight).to(output_at.dtype.element_ty), mask=is_result)


@triton.jit
def _tile_of_prompt(tile, starts_at, lengths_at, num_sequences, tile_tokens: tl.constexpr):
    """Whose tile this is, where its new tokens begin, how many they are, how long it is, and the tile's first position.

    Tiles of sequence i begin with number starts[i] // tile_tokens + 2 i, which leaves room for all: tiles are aligned
    to positions of the sequence, so its new tokens may begin and end within one.
    """
    searched: tl.constexpr = 128
    sequence = -1
    for place in range(0, num_sequences, searched):
        sequences = place + tl.arange(0, searched)
        starts = tl.load(starts_at + sequences, mask=sequences < num_sequences, other=0).to(tl.int32)
        begins_before = (starts // tile_tokens + 2 * sequences <= tile) & (sequences < num_sequences)
        sequence += tl.sum(begins_before.to(tl.int32), 0)
    start = tl.load(starts_at + sequence).to(tl.int64)
    num_new = (tl.load(starts_at + sequence + 1) - start).to(tl.int32)
    length = tl.load(lengths_at + sequence).to(tl.int32)
    number = tile - start.to(tl.int32) // tile_tokens - 2 * sequence
    return sequence, start, num_new, length, ((length - num_new) // tile_tokens + number) * tile_tokens


@triton.jit(do_not_specialize=["num_sequences"])
def _merge_parts(
    output_at,
    mixed_at,
    weights_at,
    lengths_at,
    num_sequences,
    outer,
    window: tl.constexpr,
    group: tl.constexpr,
    head_dim: tl.constexpr,
    padded_dim: tl.constexpr,
    num_rows: tl.constexpr,
    tile_tokens: tl.constexpr,
    overlapped: tl.constexpr,
):
    """What programs found in the parts of one sequence, for the heads that share one KV head."""
    wait_for_inputs(overlapped)
    kv_head = tl.program_id(0)
    sequence = tl.program_id(1).to(tl.int64)
    length = tl.load(lengths_at + sequence).to(tl.int32)
    part_size = _part_size((length - 1) // tile_tokens * tile_tokens + tile_tokens)
    begin = 0
    if window > 0:
        begin = tl.maximum(length - window, 0)
    rows = tl.arange(0, num_rows)
    is_row = rows < group
    dims = tl.arange(0, padded_dim)
    is_result = is_row[:, None] & (dims < head_dim)[None, :]
    heads = sequence * tl.num_programs(0) * group + kv_head * group + rows
    all_results = tl.cast(num_sequences, tl.int64) * tl.num_programs(0) * group * _MOST_PARTS
    mixed = tl.zeros([num_rows, padded_dim], tl.float32)
    weight = tl.zeros([num_rows], tl.float32)
    largest = tl.full([num_rows], float("-inf"), tl.float32)
    for part in range(begin // part_size, tl.cdiv(length, part_size)):
        results = heads * _MOST_PARTS + part
        part_mixed = tl.load(mixed_at + results[:, None] * head_dim + dims[None, :], mask=is_result, other=0.0)
        part_weight = tl.load(weights_at + results, mask=is_row, other=0.0)
        part_largest = tl.load(weights_at + all_results + results, mask=is_row, other=float("-inf"))
        mixed, weight, largest = _merge(mixed, weight, largest, part_mixed, part_weight, part_largest, outer)
    places = output_at + heads[:, None] * head_dim + dims[None, :]
    tl.store(places, _mean(mixed, weight).to(output_at.dtype.element_ty), mask=is_result)


def batch_invariant_attention(
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
) -> Tensor:
    """See `quire.ops.functional.batch_invariant_attention`. The output is contiguous; the scale is above 0."""
    assert scales is None, "for KV in 16 bits"
    assert (sinks, chunk) == (None, None), "for models without experts"
    output = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    if not len(query):
        return output
    num_tokens, num_heads, head_dim = query.shape
    _, block_size, num_kv_heads, _ = keys.shape
    num_sequences, group = len(lengths), num_heads // num_kv_heads
    padded_dim, decodes = padded(head_dim), num_tokens == num_sequences
    num_rows = max(_LEAST_ROWS, padded(group))
    tile_tokens = 1 << ((num_rows // group).bit_length() - 1)
    programs = 1
    if decodes:
        wanted = _PROGRAMS * multiprocessors(query.device) // (num_sequences * num_kv_heads)
        programs = max(1, min(wanted, _MOST_PARTS.value))
    mixed = weights = output
    if programs > 1:
        shape = (num_sequences, num_heads, _MOST_PARTS.value)
        mixed = torch.empty((*shape, head_dim), dtype=torch.float32, device=query.device)
        weights = torch.empty((2, *shape), dtype=torch.float32, device=query.device)
    inner, outer = exponents(scale, softcap)
    overlapping = overlap(query) if decodes else {"overlapped": False}
    shared = {"window": window or 0, "group": group, "head_dim": head_dim, "padded_dim": padded_dim}
    settings = {
        **shared,
        "decodes": decodes,
        "whole": programs == 1,
        "capped": softcap is not None,
        "dot_type": dot_type_of(keys),
        "block_size": block_size,
        "num_rows": num_rows,
        "tile_tokens": tile_tokens,
        "tile_size": _TILE,
        "num_warps": num_rows // 16,  # each has 16 rows to itself, so that the same lanes sum along a tile
        "num_stages": 3 if decodes else 2,
        **overlapping,
    }
    tensors = (output, mixed, weights, query, keys, values, tables, query_starts, lengths)
    strides = (output.stride(0), query.stride(0), query.stride(1), keys.stride(1), tables.stride(0))
    num_tiles = num_sequences if decodes else num_tokens // tile_tokens + 2 * num_sequences
    grid = (num_kv_heads, num_tiles, programs)
    launch_staged(_attend, grid, (*tensors, num_sequences, *strides, inner, outer), settings, "num_stages")
    if programs > 1:
        _merge_parts[(num_kv_heads, num_sequences)](
            output,
            mixed,
            weights,
            lengths,
            num_sequences,
            outer,
            **shared,
            num_rows=triton.next_power_of_2(group),
            tile_tokens=tile_tokens,
            num_warps=4,
            **overlapping,
        )
    return output
