"""One tile of cached latents, folded into a softmax that runs over tiles: what kernels of latent attention do inside.

A latent is key and value at once, so a tile is loaded once and multiplied with twice. Everything is transposed:
positions, and then dimensions of the latent, are the rows of matmuls, whose columns are heads. A warpgroup of Hopper
multiplies 64 rows at once, of operands that lie in shared memory, and 16 heads alone would leave most of it idle.
"""

import triton
import triton.language as tl

from quire.ops.triton.attend_keys import load_rows


@triton.jit
def load_query(
    absorbed_at,  # where queries that `up` was moved to begin, [tokens, heads, latent_dim]
    query_at,  # and where their rotary parts do
    absorbed_rows,
    query_rows,
    is_there,
    scale_is_given: tl.constexpr,
    dot_type: tl.constexpr,
    latent_dim: tl.constexpr,
    rope_dim: tl.constexpr,
    padded_latent: tl.constexpr,
    padded_rope: tl.constexpr,
):
    """[padded_latent, rows] and [padded_rope, rows]: beside a cache in fp8 in float16, where bfloat16 may be out of
    range.
    """
    query = load_rows(absorbed_at, absorbed_rows, 1, is_there, True, latent_dim, padded_latent)
    turned = load_rows(query_at, query_rows, 1, is_there, True, rope_dim, padded_rope)
    if scale_is_given:
        query = tl.clamp(query.to(tl.float32), -65504.0, 65504.0, propagate_nan=tl.PropagateNan.ALL)
        turned = tl.clamp(turned.to(tl.float32), -65504.0, 65504.0, propagate_nan=tl.PropagateNan.ALL)
    return tl.trans(query.to(dot_type)), tl.trans(turned.to(dot_type))


@triton.jit
def fold_latents(
    mixed,  # float32 [padded_latent, rows]: latents weighted so far
    weight,  # float32 [rows]: the sum of their weights
    largest,  # float32 [rows]: the largest score so far, -inf where there was none
    query,  # as `load_query` gives them
    turned,
    query_positions,  # int32 [rows]
    cache_at,
    table_at,
    first,  # the tile is the positions from here on ...
    end,  # ... of which those before this are there
    slot_stride,
    outer,
    masked: tl.constexpr,  # false promises that every row sees every position of the tile
    dot_type: tl.constexpr,
    block_size: tl.constexpr,
    latent_dim: tl.constexpr,
    rope_dim: tl.constexpr,
    padded_latent: tl.constexpr,
    padded_rope: tl.constexpr,
    tile_size: tl.constexpr,
):
    """`mixed`, `weight` and `largest` with the `tile_size` positions from `first` on taken in."""
    positions = first + tl.arange(0, tile_size)
    is_there = positions < end
    if masked:
        blocks = tl.load(table_at + positions // block_size, mask=is_there, other=0)
    else:
        blocks = tl.load(table_at + positions // block_size)
    slots = blocks.to(tl.int64) * block_size + positions % block_size
    # no number that may stand in a slot nobody wrote must get into a dot product: not even a weight of 0 removes a NaN
    latent = load_rows(cache_at, slots, slot_stride, is_there, masked, latent_dim, padded_latent).to(dot_type)
    rotary = load_rows(cache_at + latent_dim, slots, slot_stride, is_there, masked, rope_dim, padded_rope).to(dot_type)

    scores = tl.dot(latent, query, input_precision="ieee")
    scores = tl.dot(rotary, turned, scores, input_precision="ieee")
    if masked:
        is_seen = is_there[:, None] & (positions[:, None] <= query_positions[None, :])
        scores = tl.where(is_seen, scores, float("-inf"))
    new_largest = tl.maximum(largest, tl.max(scores, 0))
    subtracted = new_largest * outer
    if masked:  # a row that has seen nothing yet: -inf less -inf would be NaN
        subtracted = tl.where(new_largest == float("-inf"), 0.0, subtracted)
    weights = tl.exp2(scores * outer - subtracted[None, :])
    kept = tl.exp2(largest * outer - subtracted)
    weight = weight * kept + tl.sum(weights, 0)
    mixed = tl.dot(tl.trans(latent), weights.to(dot_type), mixed * kept[None, :], input_precision="ieee")
    return mixed, weight, new_largest
