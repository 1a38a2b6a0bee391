"""Latent attention of any mixture of chunks and decodes in one launch, over latents as they are cached.

A program takes one tile of rows: some new tokens of one sequence with a tile of their heads, token after token. Which
tokens those are it finds itself, so that the grid depends on nothing but shapes.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.triton.attend_keys import dot_type_of, exponents, padded
from quire.ops.triton.attend_latent_split import MOST_HEADS, POSITIONS, WARPS
from quire.ops.triton.card import card_of, fitting_positions
from quire.ops.triton.find_tile import find_tile
from quire.ops.triton.fold_latents import fold_latents, load_query
from quire.ops.triton.staged import launch_staged


@triton.jit(do_not_specialize=["num_sequences", "table_stride"])
def attend_latent_tiles_kernel(
    output_at,  # [tokens, heads, latent_dim]
    absorbed_at,  # the same
    query_at,
    cache_at,
    scales_at,  # float32 [2], of which the first is what a cache in fp8 was divided by; None: nothing
    tables_at,
    starts_at,
    lengths_at,
    num_sequences,
    query_stride,  # of tokens
    head_stride,  # of the query
    slot_stride,
    table_stride,
    outer,
    dot_type: tl.constexpr,
    fp8: tl.constexpr,
    block_size: tl.constexpr,
    num_heads: tl.constexpr,
    tile_heads: tl.constexpr,
    nope_dim: tl.constexpr,
    latent_dim: tl.constexpr,
    rope_dim: tl.constexpr,
    padded_latent: tl.constexpr,
    padded_rope: tl.constexpr,
    num_rows: tl.constexpr,
    tile_size: tl.constexpr,
):
    """softmax(query · latents) · latents, for the query rows of one tile."""
    tile_tokens: tl.constexpr = num_rows // tile_heads
    # the last tokens of a prompt see the most: begin with them, so that what runs last is short
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    sequence, start, num_new, first_token = find_tile(tile, starts_at, num_sequences, tile_tokens)
    if first_token >= num_new:
        return
    num_old = tl.load(lengths_at + sequence).to(tl.int32) - num_new
    rows = tl.arange(0, num_rows)
    tokens = first_token + rows // tile_heads
    heads = tl.program_id(1) * tile_heads + rows % tile_heads
    row_is_there = (tokens < num_new) & (rows < tile_tokens * tile_heads) & (heads < num_heads)
    results = ((start + tokens) * num_heads + heads) * latent_dim
    dims = tl.arange(0, padded_latent)
    places = output_at + results[:, None] + dims[None, :]
    is_there = row_is_there[:, None] & (dims < latent_dim)[None, :]
    if num_old == 0:
        tl.store(places, tl.zeros([num_rows, padded_latent], output_at.dtype.element_ty), mask=is_there)
        return

    query, turned = load_query(
        absorbed_at, query_at + nope_dim, results, (start + tokens) * query_stride + heads * head_stride,
        row_is_there, fp8, dot_type, latent_dim, rope_dim, padded_latent, padded_rope,
    )  # fmt: skip
    query_positions = num_old + tokens
    end = num_old + tl.minimum(first_token + tile_tokens, num_new)
    open_to = (num_old + first_token + 1) // tile_size * tile_size  # up to here every row sees every position

    scale = 1.0
    if scales_at is not None:
        scale = tl.load(scales_at)
    outer *= scale
    mixed = tl.zeros([padded_latent, num_rows], tl.float32)
    weight = tl.zeros([num_rows], tl.float32)
    largest = tl.full([num_rows], float("-inf"), tl.float32)
    table_at = tables_at + tl.cast(sequence, tl.int64) * table_stride
    for first in range(0, open_to, tile_size):
        mixed, weight, largest = fold_latents(
            mixed, weight, largest, query, turned, query_positions, cache_at, table_at,
            first, end, slot_stride, outer,
            False, dot_type, block_size, latent_dim, rope_dim, padded_latent, padded_rope, tile_size,
        )  # fmt: skip
    for first in range(open_to, end, tile_size):
        mixed, weight, largest = fold_latents(
            mixed, weight, largest, query, turned, query_positions, cache_at, table_at,
            first, end, slot_stride, outer,
            True, dot_type, block_size, latent_dim, rope_dim, padded_latent, padded_rope, tile_size,
        )  # fmt: skip

    mixed = tl.trans(mixed / tl.where(weight == 0.0, 1.0, weight)[None, :]) * scale
    tl.store(places, mixed.to(output_at.dtype.element_ty), mask=is_there)


def attend_latent_tiles(
    absorbed: Tensor,
    query: Tensor,
    cache: Tensor,
    tables: Tensor,
    query_starts: Tensor,
    lengths: Tensor,
    nope_dim: int,
    scale: float,
    scales: Tensor | None,
) -> Tensor:
    """[tokens, heads, latent_dim] of what each head finds among latents.

    Sequences without a past, for which there is `attend_expanded`, find zeros.
    """
    num_tokens, num_heads, latent_dim = absorbed.shape
    num_sequences, rope_dim = len(lengths), query.shape[-1] - nope_dim
    tile_heads = min(num_heads, MOST_HEADS)
    is_exact = cache.element_size() == 4  # no tensor cores; it is here to be right
    num_rows = padded(tile_heads) if is_exact else MOST_HEADS
    stages = 1 if is_exact else 2
    position_bytes = (latent_dim + rope_dim) * cache.element_size()
    query_bytes = num_rows * position_bytes
    tile = fitting_positions(card_of(query.device), 16 if is_exact else POSITIONS, position_bytes, stages, query_bytes)
    settings = {
        "dot_type": dot_type_of(cache),
        "fp8": cache.element_size() == 1,
        "block_size": cache.shape[1],
        "num_heads": num_heads,
        "tile_heads": tile_heads,
        "nope_dim": nope_dim,
        "latent_dim": latent_dim,
        "rope_dim": rope_dim,
        "padded_latent": padded(latent_dim),
        "padded_rope": padded(rope_dim),
        "num_rows": num_rows,
        "tile_size": tile,
        "num_warps": 4 if is_exact else WARPS,
        "num_stages": stages,
    }
    output = torch.empty_like(absorbed)
    tensors = (output, absorbed, query, cache, scales, tables, query_starts, lengths)
    strides = (query.stride(0), query.stride(1), cache.stride(1), tables.stride(0))
    grid = (num_tokens // (num_rows // tile_heads) + num_sequences, triton.cdiv(num_heads, tile_heads))
    arguments = (*tensors, num_sequences, *strides, exponents(scale, None)[1])
    launch_staged(attend_latent_tiles_kernel, grid, arguments, settings, "num_stages")
    return output
