"""Latent attention of prompts without tokens from before, whose keys and values were made of their latents at once.

A query then multiplies with 192 and 128 numbers of a token it sees, where latents as they are cached have 576 and 512.
Sequences with a past are left out: making keys and values of all of it anew in every step would cost more.
"""

import triton
import triton.language as tl
from torch import Tensor

from quire.ops.triton.attend_keys import dot_type_of, exponents, load_rows, padded
from quire.ops.triton.card import card_of, fitting_positions
from quire.ops.triton.find_tile import find_tile
from quire.ops.triton.staged import launch_staged

_ROWS = 128
"""Tokens of a program: two warpgroups of Hopper. One kernel for prompts of all lengths, so that none compiles late."""


@triton.jit
def _fold_tokens(
    mixed,  # float32 [rows, padded_value]
    weight,
    largest,
    query,  # [rows, padded_nope]
    turned,  # [rows, padded_rope]
    query_positions,
    keys_at,  # those of one head and of the sequence's first token, without their rotary part ...
    rotary_at,  # ... which all heads share
    values_at,
    first,
    end,
    up_stride,  # of tokens, in what `up` made of them
    latent_stride,
    outer,
    masked: tl.constexpr,
    dot_type: tl.constexpr,
    nope_dim: tl.constexpr,
    rope_dim: tl.constexpr,
    value_dim: tl.constexpr,
    padded_nope: tl.constexpr,
    padded_rope: tl.constexpr,
    padded_value: tl.constexpr,
    tile_size: tl.constexpr,
):
    """`mixed`, `weight` and `largest` with the `tile_size` tokens from `first` on taken in."""
    positions = first + tl.arange(0, tile_size)
    is_there = positions < end
    places = positions.to(tl.int64)
    key = load_rows(keys_at, places, up_stride, is_there, masked, nope_dim, padded_nope).to(dot_type)
    rotary = load_rows(rotary_at, places, latent_stride, is_there, masked, rope_dim, padded_rope).to(dot_type)
    value = load_rows(values_at, places, up_stride, is_there, masked, value_dim, padded_value).to(dot_type)
    scores = tl.dot(query, tl.trans(key), input_precision="ieee")
    scores = tl.dot(turned, tl.trans(rotary), scores, input_precision="ieee")
    if masked:
        is_seen = is_there[None, :] & (positions[None, :] <= query_positions[:, None])
        scores = tl.where(is_seen, scores, float("-inf"))
    new_largest = tl.maximum(largest, tl.max(scores, 1))
    subtracted = new_largest * outer  # the first token is seen by all rows, so none is -inf
    weights = tl.exp2(scores * outer - subtracted[:, None])
    kept = tl.exp2(largest * outer - subtracted)
    weight = weight * kept + tl.sum(weights, 1)
    mixed = tl.dot(weights.to(dot_type), value, mixed * kept[:, None], input_precision="ieee")
    return mixed, weight, new_largest


@triton.jit(do_not_specialize=["num_sequences", "base"])
def attend_expanded_kernel(
    output_at,  # [tokens, heads, value_dim]
    query_at,
    expanded_at,  # [tokens, keys of all heads, then values of all heads]
    latents_at,
    starts_at,
    lengths_at,
    num_sequences,
    base,  # where the first of them begins
    query_stride,  # of tokens
    head_stride,  # of the query
    up_stride,
    latent_stride,
    outer,
    dot_type: tl.constexpr,
    num_heads: tl.constexpr,
    nope_dim: tl.constexpr,
    rope_dim: tl.constexpr,
    value_dim: tl.constexpr,
    latent_dim: tl.constexpr,
    padded_nope: tl.constexpr,
    padded_rope: tl.constexpr,
    padded_value: tl.constexpr,
    num_rows: tl.constexpr,
    tile_size: tl.constexpr,
):
    """softmax(query · keys) · values, for some tokens and one head."""
    # the last tokens of a prompt see the most: begin with them, so that what runs last is short
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    head = tl.program_id(1)
    sequence, start, num_new, first_token = find_tile(tile, starts_at, num_sequences, num_rows, base)
    if first_token >= num_new:
        return
    if tl.load(lengths_at + sequence).to(tl.int32) > num_new:
        return

    tokens = first_token + tl.arange(0, num_rows)
    row_is_there = tokens < num_new
    query_rows = (start + tokens) * query_stride + head * head_stride
    query = load_rows(query_at, query_rows, 1, row_is_there, True, nope_dim, padded_nope).to(dot_type)
    turned = load_rows(query_at + nope_dim, query_rows, 1, row_is_there, True, rope_dim, padded_rope).to(dot_type)
    keys_at = expanded_at + (start - base) * up_stride + head * nope_dim
    values_at = expanded_at + (start - base) * up_stride + num_heads * nope_dim + head * value_dim
    rotary_at = latents_at + start * latent_stride + latent_dim
    mixed = tl.zeros([num_rows, padded_value], tl.float32)
    weight = tl.zeros([num_rows], tl.float32)
    largest = tl.full([num_rows], float("-inf"), tl.float32)
    open_to = (first_token + 1) // tile_size * tile_size  # up to here every row sees every token
    for first in range(0, open_to, tile_size):
        mixed, weight, largest = _fold_tokens(
            mixed, weight, largest, query, turned, tokens, keys_at, rotary_at, values_at, first, num_new,
            up_stride, latent_stride, outer, False, dot_type,
            nope_dim, rope_dim, value_dim, padded_nope, padded_rope, padded_value, tile_size,
        )  # fmt: skip
    for first in range(open_to, tl.minimum(first_token + num_rows, num_new), tile_size):
        mixed, weight, largest = _fold_tokens(
            mixed, weight, largest, query, turned, tokens, keys_at, rotary_at, values_at, first, num_new,
            up_stride, latent_stride, outer, True, dot_type,
            nope_dim, rope_dim, value_dim, padded_nope, padded_rope, padded_value, tile_size,
        )  # fmt: skip

    mixed = mixed / weight[:, None]
    dims = tl.arange(0, padded_value)
    places = output_at + (((start + tokens) * num_heads + head) * value_dim)[:, None] + dims[None, :]
    tl.store(places, mixed.to(output_at.dtype.element_ty), mask=row_is_there[:, None] & (dims < value_dim)[None, :])


def attend_expanded(
    output: Tensor,
    query: Tensor,
    expanded: Tensor,
    latents: Tensor,
    query_starts: Tensor,
    lengths: Tensor,
    nope_dim: int,
    scale: float,
    base: int = 0,
) -> None:
    """Into the rows of a contiguous `output` that belong to sequences without a past.

    Those of tokens before `base` are left out, where the first of the sequences begins; `expanded` has none of them.

    query: [tokens, heads, nope_dim + rope_dim]; expanded: [tokens, heads * nope_dim + heads * value_dim].
    """
    num_tokens, num_heads, value_dim = len(expanded), *output.shape[1:]
    num_sequences, rope_dim = len(lengths), query.shape[-1] - nope_dim
    is_exact = query.element_size() == 4  # no tensor cores; it is here to be right
    num_rows = 16 if is_exact else _ROWS
    stages = 1 if is_exact else 3
    position_bytes = (nope_dim + rope_dim + value_dim) * query.element_size()
    query_bytes = num_rows * query.shape[-1] * query.element_size()
    tile = fitting_positions(card_of(query.device), 16 if is_exact else 64, position_bytes, stages, query_bytes)
    settings = {
        "dot_type": dot_type_of(query),
        "num_heads": num_heads,
        "nope_dim": nope_dim,
        "rope_dim": rope_dim,
        "value_dim": value_dim,
        "latent_dim": latents.shape[1] - rope_dim,
        "padded_nope": padded(nope_dim),
        "padded_rope": padded(rope_dim),
        "padded_value": padded(value_dim),
        "num_rows": num_rows,
        "tile_size": tile,
        "num_warps": 4 if is_exact else 8,
        "num_stages": stages,
    }
    tensors = (output, query, expanded, latents, query_starts, lengths)
    strides = (query.stride(0), query.stride(1), expanded.stride(0), latents.stride(0))
    grid = (num_tokens // num_rows + num_sequences, num_heads)
    arguments = (*tensors, num_sequences, base, *strides, exponents(scale, None)[1])
    launch_staged(attend_expanded_kernel, grid, arguments, settings, "num_stages")
