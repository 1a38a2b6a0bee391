"""prepare_latent on a GPU: norm, rotation and the way into the paged cache, in one pass over a layer's projections.

Each program takes one token, and either some of its queries, of which only the rotary part moves, or its latent.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.triton.overlap import overlap, wait_for_inputs
from quire.ops.triton.prepare_heads import as_stored

_TILE = 1024
"""Elements of each half of a program's rotary parts, at most: 32 heads of 64."""


@triton.jit
def _turn(first, second, cos, sin, dtype: tl.constexpr):
    return (first * cos - second * sin).to(dtype), (second * cos + first * sin).to(dtype)


@triton.jit
def _keep(at, cache_at, place, value, scale, mask):
    """One number of the latent where ops read it and where it is cached: both see it as the cache holds it."""
    stored = as_stored(value, scale, cache_at.dtype.element_ty)
    tl.store(cache_at + place, stored, mask=mask)
    if cache_at.dtype.element_ty.primitive_bitwidth == 8:
        value = (stored.to(tl.float32) * scale).to(at.dtype.element_ty)
    tl.store(at + place, value, mask=mask)


@triton.jit
def _prepare_latent(
    query_at,
    query_stride,  # of tokens
    head_stride,
    compressed_at,
    compressed_stride,
    weight_at,
    eps,
    cos_at,
    cos_stride,
    sin_at,
    sin_stride,
    latents_at,
    cache_at,
    slot_stride,
    scales_at,  # float32 [2], of which the first is what a cache in fp8 is divided by; None: nothing
    slots_at,
    slots_stride,
    num_heads: tl.constexpr,
    head_tile: tl.constexpr,
    nope_dim: tl.constexpr,
    latent_dim: tl.constexpr,
    half: tl.constexpr,
    padded_half: tl.constexpr,
    padded_latent: tl.constexpr,
    overlapped: tl.constexpr,
):
    wait_for_inputs(overlapped)
    query_programs: tl.constexpr = (num_heads + head_tile - 1) // head_tile
    # 64 bits: the elements of a long prompt outgrow 32
    token = (tl.program_id(0) // (query_programs + 1)).to(tl.int64)
    part = tl.program_id(0) % (query_programs + 1)
    dtype = query_at.dtype.element_ty
    column = tl.arange(0, padded_half)
    is_pair = column < half
    cos = tl.load(cos_at + token * cos_stride + column, mask=is_pair, other=0.0)
    sin = tl.load(sin_at + token * sin_stride + column, mask=is_pair, other=0.0)

    if part < query_programs:
        head = part * head_tile + tl.arange(0, head_tile)
        places = query_at + token * query_stride + nope_dim + (head * head_stride)[:, None] + column[None, :]
        within = (head < num_heads)[:, None] & is_pair[None, :]
        firsts = tl.load(places, mask=within, other=0.0).to(tl.float32)
        seconds = tl.load(places + half, mask=within, other=0.0).to(tl.float32)
        turned_firsts, turned_seconds = _turn(firsts, seconds, cos[None, :], sin[None, :], dtype)
        tl.store(places, turned_firsts, mask=within)
        tl.store(places + half, turned_seconds, mask=within)
    else:
        slot = tl.load(slots_at + token * slots_stride).to(tl.int64)
        scale = 1.0
        if scales_at is not None:
            scale = tl.load(scales_at)
        compressed_at += token * compressed_stride
        latents_at += token * (latent_dim + 2 * half)
        cache_at += slot * slot_stride
        dims = tl.arange(0, padded_latent)
        is_dim = dims < latent_dim
        latent = tl.load(compressed_at + dims, mask=is_dim, other=0.0).to(tl.float32)
        first = tl.load(compressed_at + latent_dim + column, mask=is_pair, other=0.0).to(tl.float32)
        second = tl.load(compressed_at + latent_dim + half + column, mask=is_pair, other=0.0).to(tl.float32)
        weight = tl.load(weight_at + dims, mask=is_dim, other=0.0).to(tl.float32)
        normed = latent * tl.rsqrt(tl.sum(latent * latent, 0) / latent_dim + eps) * weight
        _keep(latents_at, cache_at, dims, normed.to(dtype), scale, is_dim)
        turned_first, turned_second = _turn(first, second, cos, sin, dtype)
        _keep(latents_at, cache_at, latent_dim + column, turned_first, scale, is_pair)
        _keep(latents_at, cache_at, latent_dim + half + column, turned_second, scale, is_pair)


def prepare_latent(
    query: Tensor,
    compressed: Tensor,
    weight: Tensor,
    eps: float,
    angles: tuple[Tensor, Tensor],
    cache: Tensor,
    slots: Tensor,
    scales: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """All but slots and scales may be views, with contiguous rows. Queries are turned where they are; latents are given
    back as the cache holds them.
    """
    num_tokens, num_heads, head_dim = query.shape
    latent_dim, half = weight.shape[0], angles[0].shape[-1]
    rows = (query, compressed, cache, *angles)
    assert all(each.stride(-1) == 1 for each in rows), f"rows must be contiguous: {[each.stride() for each in rows]}"
    latents = torch.empty((num_tokens, latent_dim + 2 * half), dtype=query.dtype, device=query.device)
    padded_half, padded_latent = triton.next_power_of_2(half), triton.next_power_of_2(latent_dim)
    head_tile = min(max(1, _TILE // padded_half), triton.next_power_of_2(num_heads))
    cos, sin = angles
    _prepare_latent[(num_tokens * (triton.cdiv(num_heads, head_tile) + 1),)](
        query,
        query.stride(0),
        query.stride(1),
        compressed,
        compressed.stride(0),
        weight,
        eps,
        cos,
        cos.stride(0),
        sin,
        sin.stride(0),
        latents,
        cache,
        cache.stride(1),
        scales,
        slots,
        slots.stride(0),
        num_heads=num_heads,
        head_tile=head_tile,
        nope_dim=head_dim - 2 * half,
        latent_dim=latent_dim,
        half=half,
        padded_half=padded_half,
        padded_latent=padded_latent,
        num_warps=4,
        **overlap(query),
    )
    return query, latents
