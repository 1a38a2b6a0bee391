"""Latent attention of one new token a sequence, each over its latents in parts that are computed at once and merged.

All heads of a token read the same, so a program has a tile of them, and every latent is read once for each tile.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.triton.attend_keys import dot_type_of, exponents, padded
from quire.ops.triton.attend_split import choose_parts, merge_parts_kernel, share_tiles
from quire.ops.triton.card import card_of, fitting_positions
from quire.ops.triton.fold_latents import fold_latents, load_query
from quire.ops.triton.overlap import overlap, wait_for_inputs
from quire.ops.triton.staged import launch_staged

MOST_HEADS = 64
"""Of a tile: sums of more of them would not stay in registers."""
POSITIONS = 64
"""Of a tile: a warpgroup multiplies no fewer at once. Two tiles are 144 KiB."""
WARPS = 8
"""One program fills a multiprocessor's shared memory, and with 4 warps it needs more registers than there are."""
_FEW_HEADS = 16
"""Up to here a program leaves room for a second one on its multiprocessor, which computes while the first reads."""
_FEW_SEQUENCES = 16
"""Up to here multiprocessors have one program each anyway."""
_MOST_PARTS = 32
"""Merging reads all parts of a head at once, into registers."""


@triton.jit(do_not_specialize=["table_stride"])
def attend_latent_part_kernel(
    mixed_at,  # the output, where the only part is the whole; else float32 [sequences, heads, parts, latent_dim]
    weights_at,  # float32 [sequences, heads, parts]: log2 of the sum that a part's softmax was divided by
    absorbed_at,  # [sequences, heads, latent_dim]
    query_at,
    cache_at,
    scales_at,  # float32 [2], of which the first is what a cache in fp8 was divided by; None: nothing
    tables_at,
    lengths_at,
    query_stride,  # of tokens
    head_stride,  # of the query
    slot_stride,
    table_stride,
    outer,
    whole: tl.constexpr,
    dot_type: tl.constexpr,
    fp8: tl.constexpr,
    block_size: tl.constexpr,
    num_heads: tl.constexpr,
    nope_dim: tl.constexpr,
    latent_dim: tl.constexpr,
    rope_dim: tl.constexpr,
    padded_latent: tl.constexpr,
    padded_rope: tl.constexpr,
    num_rows: tl.constexpr,
    tile_size: tl.constexpr,
    overlapped: tl.constexpr,
):
    """softmax(query · latents) · latents over one part of a sequence's cache, for a tile of heads."""
    wait_for_inputs(overlapped)
    sequence = tl.program_id(1).to(tl.int64)
    part = tl.program_id(2)
    num_parts = tl.num_programs(2)
    length = tl.load(lengths_at + sequence).to(tl.int32)
    first_tile, last_tile, tiles_each = share_tiles(0, length, num_parts, 0, tile_size)
    begin_tile = first_tile + part * tiles_each
    end_tile = tl.minimum(begin_tile + tiles_each, last_tile)
    if not whole and begin_tile >= end_tile:
        return  # the merge knows, by the same arithmetic

    heads = tl.program_id(0) * num_rows + tl.arange(0, num_rows)
    is_head = heads < num_heads
    query, turned = load_query(
        absorbed_at, query_at + nope_dim, (sequence * num_heads + heads) * latent_dim,
        sequence * query_stride + heads * head_stride, is_head, fp8, dot_type,
        latent_dim, rope_dim, padded_latent, padded_rope,
    )  # fmt: skip
    query_positions = tl.zeros([num_rows], tl.int32) + (length - 1)
    scale = 1.0
    if scales_at is not None:
        scale = tl.load(scales_at)
    outer *= scale
    mixed = tl.zeros([padded_latent, num_rows], tl.float32)
    weight = tl.zeros([num_rows], tl.float32)
    largest = tl.full([num_rows], float("-inf"), tl.float32)
    table_at = tables_at + sequence * table_stride
    # masks cost nothing beside the reading, and one loop keeps tiles in flight where two would run dry in between
    for tile in range(begin_tile, end_tile):
        mixed, weight, largest = fold_latents(
            mixed, weight, largest, query, turned, query_positions, cache_at, table_at,
            tile * tile_size, length, slot_stride, outer,
            True, dot_type, block_size, latent_dim, rope_dim, padded_latent, padded_rope, tile_size,
        )  # fmt: skip

    # a sequence of length 0 gives zeros
    mixed = tl.trans(mixed / tl.where(weight == 0.0, 1.0, weight)[None, :]) * scale
    results = (sequence * num_heads + heads) * num_parts + part
    dims = tl.arange(0, padded_latent)
    tl.store(
        mixed_at + results[:, None] * latent_dim + dims[None, :],
        mixed.to(mixed_at.dtype.element_ty),
        mask=is_head[:, None] & (dims < latent_dim)[None, :],
    )
    if not whole:
        shift = tl.where(largest == float("-inf"), 0.0, largest * outer)
        tl.store(weights_at + results, shift + tl.log2(weight), mask=is_head)


def _choose(num_rows: int, programs: int) -> tuple[int, int, int]:
    """The positions of a tile, the warps that multiply it and the tiles under way, as measured on an H200."""
    if num_rows > _FEW_HEADS:
        return POSITIONS, WARPS, 2
    return (POSITIONS, WARPS // 2, 2) if programs <= _FEW_SEQUENCES else (POSITIONS // 2, WARPS // 2, 3)


def attend_latent_split(
    absorbed: Tensor,
    query: Tensor,
    cache: Tensor,
    tables: Tensor,
    lengths: Tensor,
    nope_dim: int,
    scale: float,
    scales: Tensor | None,
) -> Tensor:
    """[sequences, heads, latent_dim] of what each head finds among latents, where each sequence has one new token."""
    num_sequences, num_heads, latent_dim = absorbed.shape
    rope_dim, block_size = query.shape[-1] - nope_dim, cache.shape[1]
    num_rows, padded_latent = min(padded(num_heads), MOST_HEADS), padded(latent_dim)
    head_tiles = triton.cdiv(num_heads, num_rows)
    is_exact = cache.element_size() == 4  # no tensor cores; it is here to be right
    positions, warps, stages = (16, 4, 1) if is_exact else _choose(num_rows, num_sequences * head_tiles)
    position_bytes = (latent_dim + rope_dim) * cache.element_size()
    query_bytes = num_rows * position_bytes
    tile = fitting_positions(card_of(query.device), positions, position_bytes, stages, query_bytes)
    most_tiles = min(-(-tables.shape[1] * block_size // tile), _MOST_PARTS)
    num_parts = choose_parts(query.device, 2, num_sequences * head_tiles, most_tiles)
    output = torch.empty_like(absorbed)
    mixed = weights = output
    if num_parts > 1:
        shape = (num_sequences, num_heads, num_parts)
        mixed = torch.empty((*shape, latent_dim), dtype=torch.float32, device=query.device)
        weights = torch.empty(shape, dtype=torch.float32, device=query.device)
    settings = {
        "whole": num_parts == 1,
        "dot_type": dot_type_of(cache),
        "fp8": cache.element_size() == 1,
        "block_size": block_size,
        "num_heads": num_heads,
        "nope_dim": nope_dim,
        "latent_dim": latent_dim,
        "rope_dim": rope_dim,
        "padded_latent": padded_latent,
        "padded_rope": padded(rope_dim),
        "num_rows": num_rows,
        "tile_size": tile,
        "num_warps": warps,
        "num_stages": stages,
        **overlap(query),
    }
    tensors = (mixed, weights, absorbed, query, cache, scales, tables, lengths)
    strides = (query.stride(0), query.stride(1), cache.stride(1), tables.stride(0))
    grid = (head_tiles, num_sequences, num_parts)
    outer = exponents(scale, None)[1]
    launch_staged(attend_latent_part_kernel, grid, (*tensors, *strides, outer), settings, "num_stages")
    if num_parts > 1:
        padded_parts = 1 << (num_parts - 1).bit_length()
        merge_parts_kernel[(num_heads, num_sequences)](
            output,
            mixed,
            weights,
            lengths,
            lengths,  # of no use there
            None,
            num_parts,
            parts_before=0,
            tile_before=1,
            window=0,
            head_dim=latent_dim,
            padded_dim=padded_latent,
            padded_parts=padded_parts,
            tile_size=tile,
            num_warps=min(16, max(1, padded_parts * padded_latent // 1024)),
            **overlap(query),
        )
    return output
