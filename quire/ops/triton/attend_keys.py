"""One tile of a paged cache, folded into a softmax that runs over tiles: what all attention kernels do inside.

Scores stay dot products of query and key (or, with a softcap, their tanh) until they are exponents of two; the
factor that makes them such, `outer`, goes into the same multiply-add as the subtraction of the maximum.

A cache in fp8 is multiplied in float16, which holds both of its formats exactly. Its values come in pairs of
neighbouring dimensions, as 16 bits: tensor cores want values transposed, and instructions transpose no less than that.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_DOT_TYPES = {
    torch.float32: tl.float32,
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
    torch.float8_e4m3fn: tl.float16,
    torch.float8_e5m2: tl.float16,
}
_LARGEST_HALF = tl.constexpr(65504.0)
_LEAST_DOT = 16
"""No side of a tensor core's matmul is shorter."""


def dot_type_of(keys: Tensor) -> Any:
    """The type of the operands of dot products with `keys`: that of the cache, or one that holds it; float32 for
    Triton's interpreter where it must be."""
    if keys.dtype == torch.bfloat16 and not keys.is_cuda:
        return tl.float32  # the interpreter keeps bfloat16 as bits and would multiply those
    return _DOT_TYPES[keys.dtype]


def fp8_of(keys: Tensor) -> str:
    """How kernels unpack pairs of fp8: by instructions of NVIDIA's, or in any compiler's; "" where there are none."""
    if keys.element_size() > 1:
        return ""
    return "ptx" if keys.is_cuda and torch.version.hip is None else "plain"


def paired_values(values: Tensor) -> Tensor:
    """As kernels take them: those in fp8 as pairs, [blocks, block_size, kv_heads, head_dim / 2]."""
    return values.view(torch.uint16) if values.element_size() == 1 else values


def padded(size: int) -> int:
    """The size of a tile's side that holds `size`."""
    return max(_LEAST_DOT, 1 << (size - 1).bit_length())


def padded_head(head_dim: int, keys: Tensor) -> int:
    """The side of a tile that holds a head.

    Values in fp8 are multiplied as two halves, the even and the odd dimensions. Halves of 32 are avoided on NVIDIA's
    cards: an H200 (Triton 3.6) got half of the outputs wrong with heads of 64, in the kernel of shared prefixes at
    least, though its code, followed instruction by instruction, is right. Halves of 64 are right there.
    """
    side = padded(head_dim)
    return 128 if side == 64 and fp8_of(keys) == "ptx" else side


def exponents(scale: float, softcap: float | None) -> tuple[float, float]:
    """`inner` and `outer` of `fold_keys`, for a scale above 0."""
    if softcap is None:
        return 0.0, scale * math.log2(math.e)
    return 2 * scale / softcap * math.log2(math.e), softcap * math.log2(math.e)


def reach_of(window: int | None, chunk: int | None) -> int:
    """What kernels take as their window: 0 sees everything, and below 0 it is the size of chunks."""
    assert window is None or chunk is None, "a layer has a window or chunks"
    return -chunk if chunk else window or 0


@triton.jit
def first_seen(position, window: tl.constexpr):
    """The first position that a query at `position` sees, where it does not see all."""
    if window > 0:
        first = tl.maximum(position - window + 1, 0)
    else:
        chunk: tl.constexpr = -window
        first = position // chunk * chunk
    return first


@triton.jit
def share_beside(sinks_at, heads, is_head, weight):
    """What sinks leave to all other keys, whose weights sum up to 2 to the power of `weight`."""
    sinks = tl.load(sinks_at + heads, mask=is_head, other=float("-inf")).to(tl.float32)
    return 1.0 / (1.0 + tl.exp2(sinks * 1.4426950408889634 - weight))


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
def dot_query(query, dot_type: tl.constexpr, fp8: tl.constexpr):
    """A query as dot products take it; beside a cache in fp8 it is float16, where bfloat16 may be out of range."""
    if fp8 != "":
        wide = query.to(tl.float32)
        query = tl.clamp(wide, -_LARGEST_HALF, _LARGEST_HALF, propagate_nan=tl.PropagateNan.ALL)
    return query.to(dot_type)


@triton.jit
def scaled_exponents(inner, outer, scales_at, capped: tl.constexpr):
    """`inner` and `outer` for keys that were divided by a scale, the first of two; without scales as they are."""
    if scales_at is not None:
        if capped:
            inner *= tl.load(scales_at)
        else:
            outer *= tl.load(scales_at)
    return inner, outer


@triton.jit
def nothing_mixed(num_rows: tl.constexpr, padded_dim: tl.constexpr, fp8: tl.constexpr):
    """`mixed` and `mixed_odd` before the first tile."""
    if fp8 != "":
        mixed = tl.zeros([num_rows, padded_dim // 2], tl.float32)
        mixed_odd = tl.zeros([num_rows, padded_dim // 2], tl.float32)
    else:
        mixed = tl.zeros([num_rows, padded_dim], tl.float32)
        mixed_odd = tl.zeros([1], tl.float32)  # of no use there, and gone once it is compiled
    return mixed, mixed_odd


@triton.jit
def mean_of(mixed, mixed_odd, weight, scales_at, fp8: tl.constexpr):
    """[rows, padded_dim]: `mixed` divided by `weight`, in the order of dimensions and times the values' scale."""
    mean = mixed / weight[:, None]
    if fp8 != "":
        mean = tl.interleave(mean, mixed_odd / weight[:, None])
        if scales_at is not None:
            mean *= tl.load(scales_at + 1)
    return mean


# Four numbers of fp8 in three instructions, where compilers take twelve.
_UNPAIR_E4M3: tl.constexpr = tl.constexpr("""{
    .reg .b32 sorted; .reg .b16 low, high;
    prmt.b32 sorted, $2, 0, 0x3120;
    mov.b32 {low, high}, sorted;
    cvt.rn.f16x2.e4m3x2 $0, low;
    cvt.rn.f16x2.e4m3x2 $1, high;
}""")
_UNPAIR_E5M2: tl.constexpr = tl.constexpr("prmt.b32 $0, $2, 0, 0x2404; and.b32 $1, $2, 0xff00ff00;")


@triton.jit
def _unpaired(pairs, stored: tl.constexpr, fp8: tl.constexpr):
    """The first and the second numbers of pairs, in float16."""
    if fp8 == "ptx":
        code: tl.constexpr = _UNPAIR_E5M2 if stored == tl.float8e5 else _UNPAIR_E4M3
        first, second = tl.inline_asm_elementwise(
            code, "=r,=r,r", [pairs], dtype=(tl.float16, tl.float16), is_pure=True, pack=2
        )
    else:
        first = (pairs & 0xFF).to(tl.uint8).to(stored, bitcast=True).to(tl.float16)
        second = (pairs >> 8).to(tl.uint8).to(stored, bitcast=True).to(tl.float16)
    return first, second


@triton.jit
def fold_keys(
    mixed,  # float32 [rows, padded_dim]: values weighted so far; beside fp8 the even dimensions ...
    mixed_odd,  # ... and the odd ones
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
    window: tl.constexpr,  # 0: none; below 0: the size of chunks
    capped: tl.constexpr,
    dot_type: tl.constexpr,
    fp8: tl.constexpr,
    block_size: tl.constexpr,
    head_dim: tl.constexpr,
    padded_dim: tl.constexpr,
    tile_size: tl.constexpr,
):
    """`mixed`, `mixed_odd`, `weight` and `largest` with the `tile_size` positions from `first` on taken in."""
    positions = first + tl.arange(0, tile_size)
    is_there = (positions >= begin) & (positions < end)
    if masked:
        blocks = tl.load(table_at + positions // block_size, mask=is_there, other=0)
    else:
        blocks = tl.load(table_at + positions // block_size)
    slots = blocks.to(tl.int64) * block_size + positions % block_size
    # no number that may stand in a slot nobody wrote must get into a dot product: not even a weight of 0 removes a NaN
    key = load_rows(keys_at, slots, slot_stride, is_there, masked, head_dim, padded_dim)
    if fp8 != "":
        value = load_rows(values_at, slots, slot_stride // 2, is_there, masked, head_dim // 2, padded_dim // 2)
    else:
        value = load_rows(values_at, slots, slot_stride, is_there, masked, head_dim, padded_dim)

    scores = tl.dot(query, tl.trans(key.to(dot_type)), input_precision="ieee")
    if capped:
        scores = 1.0 - 2.0 / (tl.exp2(scores * inner) + 1.0)  # the tanh of scores * scale / softcap
    if masked:
        is_seen = is_there[None, :] & (positions[None, :] <= query_positions[:, None])
        if window > 0:
            is_seen = is_seen & (positions[None, :] > query_positions[:, None] - window)
        elif window < 0:
            is_seen = is_seen & (positions[None, :] >= first_seen(query_positions, window)[:, None])
        scores = tl.where(is_seen, scores, float("-inf"))

    new_largest = tl.maximum(largest, tl.max(scores, 1))
    subtracted = new_largest * outer
    if masked:  # a row that has seen nothing yet: -inf less -inf would be NaN
        subtracted = tl.where(new_largest == float("-inf"), 0.0, subtracted)
    weights = tl.exp2(scores * outer - subtracted[:, None])
    kept = tl.exp2(largest * outer - subtracted)
    weight = weight * kept + tl.sum(weights, 1)
    if fp8 != "":
        even, odd = _unpaired(value, key.dtype, fp8)
        mixed = tl.dot(weights.to(dot_type), even, mixed * kept[:, None], input_precision="ieee")
        mixed_odd = tl.dot(weights.to(dot_type), odd, mixed_odd * kept[:, None], input_precision="ieee")
    else:
        mixed = tl.dot(weights.to(dot_type), value.to(dot_type), mixed * kept[:, None], input_precision="ieee")
    return mixed, mixed_odd, weight, new_largest
