"""prepare_heads on a GPU: norm, rotation and the way into the paged cache, in one pass over a layer's projection.

Each program takes one token, and either some of its queries, or some of its keys with the values beside them.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.head_norms import HeadNorms
from quire.ops.triton.norm_heads import norm_heads
from quire.ops.triton.overlap import overlap, wait_for_inputs

_TILE = 2048
"""Elements of a program at most: 16 heads of 128. 4 warps load each half of them, 16 bytes a thread, at once."""

_ELEMENTS_PER_WARP = 512


@triton.jit
def as_stored(value, scale, to: tl.constexpr):
    """As a cache takes it: in fp8 divided by a scale, and what is out of range as the largest there is. NaN stays."""
    most: tl.constexpr = 448.0 if to == tl.float8e4nv else (57344.0 if to == tl.float8e5 else 0.0)
    if most > 0.0:
        value = tl.clamp(value.to(tl.float32) / scale, -most, most, propagate_nan=tl.PropagateNan.ALL)
    return value.to(to)


@triton.jit
def _turned(
    from_at,
    from_stride,
    to_at,
    to_stride,
    head,
    num_heads,
    weight_at,
    eps,
    offset,
    cos_at,
    sin_at,
    stored_scale,  # of what is stored in fp8
    normed: tl.constexpr,
    half: tl.constexpr,
    size: tl.constexpr,
    half_block: tl.constexpr,
    rest_block: tl.constexpr,
):
    """Move one token's heads, normed and turned.

    The two halves of the pairs and what lies beyond them are tiles of their own, so that the members of a pair meet
    in the same thread.
    """
    dtype = from_at.dtype.element_ty
    from_at += (head * from_stride)[:, None]
    to_at += (head * to_stride)[:, None]
    is_head = (head < num_heads)[:, None]
    column = tl.arange(0, half_block)[None, :]
    is_pair = is_head & (column < half)
    beyond = 2 * half + tl.arange(0, rest_block)[None, :]
    is_beyond = is_head & (beyond < size)

    squares = tl.zeros([head.shape[0], 1], dtype=tl.float32)
    if half > 0:
        first = tl.load(from_at + column, mask=is_pair, other=0.0).to(tl.float32)
        second = tl.load(from_at + half + column, mask=is_pair, other=0.0).to(tl.float32)
        squares += tl.sum(first * first + second * second, axis=1, keep_dims=True)
    if 2 * half < size:
        rest = tl.load(from_at + beyond, mask=is_beyond, other=0.0).to(tl.float32)
        squares += tl.sum(rest * rest, axis=1, keep_dims=True)

    if normed:
        scale = tl.rsqrt(squares / size + eps)
        # rounded as a norm of its own would be, so that a model says the same with this kernel as without
        if half > 0:
            first_weight = tl.load(weight_at + column, mask=column < half, other=0.0).to(tl.float32) + offset
            second_weight = tl.load(weight_at + half + column, mask=column < half, other=0.0).to(tl.float32) + offset
            first = (first * scale * first_weight).to(dtype).to(tl.float32)
            second = (second * scale * second_weight).to(dtype).to(tl.float32)
        if 2 * half < size:
            rest_weight = tl.load(weight_at + beyond, mask=beyond < size, other=0.0).to(tl.float32) + offset
            rest = rest * scale * rest_weight

    if half > 0:
        cos = tl.load(cos_at + column, mask=column < half, other=0.0)
        sin = tl.load(sin_at + column, mask=column < half, other=0.0)
        turned_first = (first * cos - second * sin).to(dtype)
        turned_second = (second * cos + first * sin).to(dtype)
        tl.store(to_at + column, as_stored(turned_first, stored_scale, to_at.dtype.element_ty), mask=is_pair)
        tl.store(to_at + half + column, as_stored(turned_second, stored_scale, to_at.dtype.element_ty), mask=is_pair)
    if 2 * half < size:
        tl.store(to_at + beyond, as_stored(rest.to(dtype), stored_scale, to_at.dtype.element_ty), mask=is_beyond)


@triton.jit
def _prepare_heads(
    heads_at,
    token_stride,
    head_stride,
    query_weight_at,
    key_weight_at,
    eps,
    offset,
    cos_at,
    cos_stride,
    sin_at,
    sin_stride,
    query_at,
    keys_at,
    keys_slot_stride,
    keys_head_stride,
    values_at,
    values_slot_stride,
    values_head_stride,
    scales_at,  # float32 [2]: what keys and values are divided by; None: nothing
    slots_at,
    slots_stride,
    num_heads: tl.constexpr,
    num_kv_heads: tl.constexpr,
    query_tile: tl.constexpr,
    kv_tile: tl.constexpr,
    normed: tl.constexpr,
    half: tl.constexpr,
    size: tl.constexpr,
    half_block: tl.constexpr,
    rest_block: tl.constexpr,
    block: tl.constexpr,
    overlapped: tl.constexpr,
):
    wait_for_inputs(overlapped)
    query_programs: tl.constexpr = (num_heads + query_tile - 1) // query_tile
    kv_programs: tl.constexpr = (num_kv_heads + kv_tile - 1) // kv_tile
    # 64 bits: the elements of a long prompt outgrow 32
    token = (tl.program_id(0) // (query_programs + kv_programs)).to(tl.int64)
    part = tl.program_id(0) % (query_programs + kv_programs)
    heads_at += token * token_stride
    if half > 0:
        cos_at += token * cos_stride
        sin_at += token * sin_stride

    if part < query_programs:
        _turned(
            heads_at,
            head_stride,
            query_at + token * (num_heads * size),
            size,
            part * query_tile + tl.arange(0, query_tile),
            num_heads,
            query_weight_at,
            eps,
            offset,
            cos_at,
            sin_at,
            1.0,
            normed,
            half,
            size,
            half_block,
            rest_block,
        )
    else:
        head = (part - query_programs) * kv_tile + tl.arange(0, kv_tile)
        slot = tl.load(slots_at + token * slots_stride).to(tl.int64)
        key_scale, value_scale = 1.0, 1.0
        if scales_at is not None:
            key_scale, value_scale = tl.load(scales_at), tl.load(scales_at + 1)
        # values need no work, so their load is under way while the keys are computed
        column = tl.arange(0, block)[None, :]
        within = (head < num_kv_heads)[:, None] & (column < size)
        value_head = num_heads + num_kv_heads + head
        value = tl.load(heads_at + (value_head * head_stride)[:, None] + column, mask=within, other=0.0)
        _turned(
            heads_at + num_heads * head_stride,
            head_stride,
            keys_at + slot * keys_slot_stride,
            keys_head_stride,
            head,
            num_kv_heads,
            key_weight_at,
            eps,
            offset,
            cos_at,
            sin_at,
            key_scale,
            normed,
            half,
            size,
            half_block,
            rest_block,
        )
        value_at = values_at + slot * values_slot_stride + (head * values_head_stride)[:, None] + column
        tl.store(value_at, as_stored(value, value_scale, values_at.dtype.element_ty), mask=within)


def prepare_heads(
    heads: Tensor,
    num_kv_heads: int,
    norms: HeadNorms | None,
    angles: tuple[Tensor, Tensor] | None,
    keys: Tensor,
    values: Tensor,
    slots: Tensor,
    scales: Tensor | None = None,
) -> Tensor:
    """heads, cos, sin and the cache may be views, with contiguous rows."""
    if norms is not None and not norms.is_plain:
        norm_heads(heads, num_kv_heads, norms)
        norms = None
    num_tokens, all_heads, size = heads.shape
    num_heads = all_heads - 2 * num_kv_heads
    half = 0 if angles is None else angles[0].shape[-1]
    rows = (heads, keys, values) if angles is None else (heads, keys, values, *angles)
    assert all(each.stride(-1) == 1 for each in rows), f"rows must be contiguous: {[each.stride() for each in rows]}"
    by_slot, values_by_slot = keys.view(-1, *keys.shape[2:]), values.view(-1, *values.shape[2:])
    query = torch.empty((num_tokens, num_heads, size), dtype=heads.dtype, device=heads.device)

    block = triton.next_power_of_2(size)
    query_tile = min(max(1, _TILE // block), triton.next_power_of_2(num_heads))
    kv_tile = min(max(1, _TILE // block), triton.next_power_of_2(num_kv_heads))
    programs = triton.cdiv(num_heads, query_tile) + triton.cdiv(num_kv_heads, kv_tile)
    norming = (None, None, 0.0, 0.0) if norms is None else (norms.query, norms.key, norms.eps, norms.offset)
    turning = (None, 0, None, 0) if angles is None else (angles[0], angles[0].stride(0), angles[1], angles[1].stride(0))
    cache = (by_slot, *by_slot.stride()[:2], values_by_slot, *values_by_slot.stride()[:2])
    _prepare_heads[(num_tokens * programs,)](
        heads,
        heads.stride(0),
        heads.stride(1),
        *norming,
        *turning,
        query,
        *cache,
        scales,
        slots,
        slots.stride(0),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        query_tile=query_tile,
        kv_tile=kv_tile,
        normed=norms is not None,
        half=half,
        size=size,
        half_block=triton.next_power_of_2(max(1, half)),
        rest_block=triton.next_power_of_2(max(1, size - 2 * half)),
        block=block,
        num_warps=min(4, max(1, query_tile * block // _ELEMENTS_PER_WARP)),
        **overlap(heads),
    )
    return query
