"""One tile of a paged cache, folded into a softmax that runs over tiles: what all attention kernels do inside.

Scores stay dot products of query and key (or, with a softcap, their tanh) until they are exponents of two; the
factor that makes them such, `outer`, goes into the same multiply-add as the subtraction of the maximum.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_DOT_TYPES = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}
_LEAST_DOT = 16
"""No side of a tensor core's matmul is shorter."""


def dot_type_of(keys: Tensor) -> Any:
    """The type of the operands of dot products with `keys`: that of the cache; float32 for Triton's interpreter."""
    if keys.dtype == torch.bfloat16 and not keys.is_cuda:
        return tl.float32  # the interpreter keeps bfloat16 as bits and would multiply those
    return _DOT_TYPES[keys.dtype]


def padded(size: int) -> int:
    """The size of a tile's side that holds `size`."""
    return max(_LEAST_DOT, 1 << (size - 1).bit_length())


def exponents(scale: float, softcap: float | None) -> tuple[float, float]:
    """`inner` and `outer` of `fold_keys`, for a scale above 0."""
    if softcap is None:
        return 0.0, scale * math.log2(math.e)
    return 2 * scale / softcap * math.log2(math.e), softcap * math.log2(math.e)


@triton.jit
def load_rows(at, rows, stride, row_is_there, masked: tl.constexpr, head_dim: tl.constexpr, padded_dim: tl.constexpr):
    """[rows, padded_dim] from `at + rows * stride`; 0 beyond `head_dim` and, if `masked`, in rows not there."""
    dims = tl.arange(0, padded_dim)
    places = at + rows[:, None] * stride + dims[None, :]
    if masked and head_dim != padded_dim:
        loaded = tl.load(places, mask=row_is_there[:, None] & (dims < head_dim)[None, :], other=0.0)
    elif masked:
        loaded = tl.load(places, mask=row_is_there[:, None], other=0.0)
    elif head_dim != padded_dim:
        loaded = tl.load(places, mask=(dims < head_dim)[None, :], other=0.0)
    else:
        loaded = tl.load(places)
    return loaded


@triton.jit
def fold_keys(
    mixed,  # float32 [rows, padded_dim]: values weighted so far
    weight,  # float32 [rows]: the sum of their weights
    largest,  # float32 [rows]: the largest score so far, -inf where there was none
    query,  # [rows, padded_dim] in dot_type
    query_positions,  # int32 [rows]
    keys_at,  # where the KV head is in the first slot
    values_at,
    table_at,
    first,  # the tile is the positions from here on ...
    begin,  # ... of which those outside begin <= position < end are not read
    end,
    slot_stride,
    inner,
    outer,
    masked: tl.constexpr,  # false promises that every row sees every position of the tile
    window: tl.constexpr,  # 0: none
    capped: tl.constexpr,
    dot_type: tl.constexpr,
    block_size: tl.constexpr,
    head_dim: tl.constexpr,
    padded_dim: tl.constexpr,
    tile_size: tl.constexpr,
):
    """`mixed`, `weight` and `largest` with the `tile_size` positions from `first` on taken in."""
    positions = first + tl.arange(0, tile_size)
    is_there = (positions >= begin) & (positions < end)
    if masked:
        blocks = tl.load(table_at + positions // block_size, mask=is_there, other=0)
    else:
        blocks = tl.load(table_at + positions // block_size)
    slots = blocks.to(tl.int64) * block_size + positions % block_size
    # no number that may stand in a slot nobody wrote must get into a dot product: not even a weight of 0 removes a NaN
    key = load_rows(keys_at, slots, slot_stride, is_there, masked, head_dim, padded_dim)
    value = load_rows(values_at, slots, slot_stride, is_there, masked, head_dim, padded_dim)

    scores = tl.dot(query, tl.trans(key.to(dot_type)), input_precision="ieee")
    if capped:
        scores = 1.0 - 2.0 / (tl.exp2(scores * inner) + 1.0)  # the tanh of scores * scale / softcap
    if masked:
        is_seen = is_there[None, :] & (positions[None, :] <= query_positions[:, None])
        if window > 0:
            is_seen = is_seen & (positions[None, :] > query_positions[:, None] - window)
        scores = tl.where(is_seen, scores, float("-inf"))

    new_largest = tl.maximum(largest, tl.max(scores, 1))
    subtracted = new_largest * outer
    if masked:  # a row that has seen nothing yet: -inf less -inf would be NaN
        subtracted = tl.where(new_largest == float("-inf"), 0.0, subtracted)
    weights = tl.exp2(scores * outer - subtracted[:, None])
    kept = tl.exp2(largest * outer - subtracted)
    weight = weight * kept + tl.sum(weights, 1)
    mixed = tl.dot(weights.to(dot_type), value.to(dot_type), mixed * kept[:, None], input_precision="ieee")
    return mixed, weight, new_largest
