"""norm_heads on a GPU: the heads of a layer's projection that are queries and keys, normed where they are.

For norms that prepare_heads' own kernel does not know. Each program takes one token, and either some of the vectors
that its queries make, or some of those of its keys.
"""

import triton
import triton.language as tl
from torch import Tensor

from quire.ops.head_norms import HeadNorms
from quire.ops.triton.norm_rows import normed
from quire.ops.triton.overlap import overlap, wait_for_inputs

_TILE = 2048
"""Elements of a program, unless a single vector has more: 16 heads of 128."""

_ELEMENTS_PER_WARP = 512


@triton.jit
def _norm_some(
    heads_at,
    head_stride: tl.constexpr,
    head_dim: tl.constexpr,
    weight_at,
    weight_stride,
    eps,
    offset,
    part,
    count: tl.constexpr,
    size: tl.constexpr,
    tile: tl.constexpr,
    block: tl.constexpr,
    is_layer: tl.constexpr,
):
    """Vectors of `size`, the next `tile` of `count`; a vector is a head, or heads one behind the other."""
    vector = part * tile + tl.arange(0, tile)[:, None]
    column = tl.arange(0, block)[None, :]
    within = (vector < count) & (column < size)
    if size == head_dim:
        at = heads_at + vector * head_stride + column
    elif head_stride == head_dim:
        at = heads_at + vector * size + column
    else:
        head = vector * (size // head_dim) + column // head_dim
        at = heads_at + head * head_stride + column % head_dim
    wide = tl.load(at, mask=within, other=0.0).to(tl.float32)
    weight = tl.load(weight_at + vector * weight_stride + column, mask=within, other=0.0).to(tl.float32)
    result = normed(wide, weight, eps, offset, is_layer, size, block)
    tl.store(at, result.to(heads_at.dtype.element_ty), mask=within)


@triton.jit
def _norm_heads(
    heads_at,
    token_stride,
    query_weight_at,
    query_weight_stride,
    key_weight_at,
    key_weight_stride,
    eps,
    offset,
    head_stride: tl.constexpr,
    head_dim: tl.constexpr,
    num_heads: tl.constexpr,
    queries: tl.constexpr,
    query_size: tl.constexpr,
    query_tile: tl.constexpr,
    query_block: tl.constexpr,
    keys: tl.constexpr,
    key_size: tl.constexpr,
    key_tile: tl.constexpr,
    key_block: tl.constexpr,
    is_layer: tl.constexpr,
    overlapped: tl.constexpr,
):
    wait_for_inputs(overlapped)
    query_programs: tl.constexpr = (queries + query_tile - 1) // query_tile
    key_programs: tl.constexpr = (keys + key_tile - 1) // key_tile
    # 64 bits: the elements of a long prompt outgrow 32
    token = (tl.program_id(0) // (query_programs + key_programs)).to(tl.int64)
    part = tl.program_id(0) % (query_programs + key_programs)
    heads_at += token * token_stride
    if part < query_programs:
        _norm_some(
            heads_at,
            head_stride,
            head_dim,
            query_weight_at,
            query_weight_stride,
            eps,
            offset,
            part,
            queries,
            query_size,
            query_tile,
            query_block,
            is_layer,
        )
    else:
        _norm_some(
            heads_at + num_heads * head_stride,
            head_stride,
            head_dim,
            key_weight_at,
            key_weight_stride,
            eps,
            offset,
            part - query_programs,
            keys,
            key_size,
            key_tile,
            key_block,
            is_layer,
        )


def norm_heads(heads: Tensor, num_kv_heads: int, norms: HeadNorms) -> None:
    """In place; heads: [tokens, those of queries, keys and values, head_dim], with contiguous rows."""
    num_tokens, all_heads, head_dim = heads.shape
    num_heads = all_heads - 2 * num_kv_heads
    assert heads.stride(-1) == 1, f"rows must be contiguous, strides are {heads.stride()}"
    queries, query_size, query_stride = _vectors(num_heads, head_dim, norms.query, norms)
    keys, key_size, key_stride = _vectors(num_kv_heads, head_dim, norms.key, norms)
    query_tile, query_block = _tile(queries, query_size)
    key_tile, key_block = _tile(keys, key_size)
    programs = triton.cdiv(queries, query_tile) + triton.cdiv(keys, key_tile)
    _norm_heads[(num_tokens * programs,)](
        heads,
        heads.stride(0),
        norms.query,
        query_stride,
        norms.key,
        key_stride,
        norms.eps,
        norms.offset,
        head_stride=heads.stride(1),
        head_dim=head_dim,
        num_heads=num_heads,
        queries=queries,
        query_size=query_size,
        query_tile=query_tile,
        query_block=query_block,
        keys=keys,
        key_size=key_size,
        key_tile=key_tile,
        key_block=key_block,
        is_layer=norms.kind == "layer",
        num_warps=min(16, max(1, query_tile * query_block // _ELEMENTS_PER_WARP)),
        **overlap(heads),
    )


def _vectors(num_heads: int, head_dim: int, weight: Tensor, norms: HeadNorms) -> tuple[int, int, int]:
    """How many vectors a token's heads make, their size, and how far the weights of one are from the next one's."""
    count, size = (1, num_heads * head_dim) if norms.span == "all" else (num_heads, head_dim)
    assert weight.is_contiguous(), f"weights must be contiguous, strides are {weight.stride()}"
    assert tuple(weight.shape) in ((size,), (count, size)), f"weights are {tuple(weight.shape)} for {count} × {size}"
    return count, size, 0 if weight.dim() == 1 else size


def _tile(count: int, size: int) -> tuple[int, int]:
    """How many vectors a program takes, and the power of two that one of them fits in."""
    block = triton.next_power_of_2(size)
    return min(max(1, _TILE // block), triton.next_power_of_2(count)), block
