"""rope_angles on a GPU: cosine and sine in one pass, for several tokens a program."""

import torch
import triton
import triton.language as tl
from torch import Tensor

_TILE = 512
"""Angles of a program, 4 for each thread of 4 warps: angles of many turns take long to reduce, so few a thread."""


# The number of tokens changes with every batch: a kernel specialised for it would be compiled while requests wait.
@triton.jit(do_not_specialize=["num_tokens"])
def _rope_angles(
    positions_at,
    position_stride,
    frequencies_at,
    token_stride,
    cos_at,
    sin_at,
    num_tokens,
    factor,
    half: tl.constexpr,
    block: tl.constexpr,
    tokens: tl.constexpr,
):
    token = (tl.program_id(0) * tokens + tl.arange(0, tokens)).to(tl.int64)
    column = tl.arange(0, block)[None, :]
    within = (token < num_tokens)[:, None] & (column < half)
    position = tl.load(positions_at + token * position_stride, mask=token < num_tokens, other=0)
    frequency = tl.load(frequencies_at + token[:, None] * token_stride + column, mask=within, other=0.0)
    angle = position.to(tl.float32)[:, None] * frequency
    out = token[:, None] * half + column
    # tl.cos and tl.sin are libdevice's accurate ones: a position of 100000 is still reduced exactly
    tl.store(cos_at + out, tl.cos(angle) * factor, mask=within)
    tl.store(sin_at + out, tl.sin(angle) * factor, mask=within)


def rope_angles(positions: Tensor, frequencies: Tensor, factor: float) -> tuple[Tensor, Tensor]:
    """frequencies: [half] for all tokens, or [tokens, half], with contiguous rows."""
    assert frequencies.stride(-1) == 1, f"rows must be contiguous, strides are {frequencies.stride()}"
    num_tokens, half = positions.shape[0], frequencies.shape[-1]
    cos = torch.empty((num_tokens, half), dtype=torch.float32, device=positions.device)
    sin = torch.empty_like(cos)
    block = triton.next_power_of_2(half)
    tokens = max(1, _TILE // block)
    _rope_angles[(triton.cdiv(num_tokens, tokens),)](
        positions,
        positions.stride(0),
        frequencies,
        frequencies.stride(0) if frequencies.dim() == 2 else 0,
        cos,
        sin,
        num_tokens,
        factor,
        half=half,
        block=block,
        tokens=tokens,
        num_warps=4,
    )
    return cos, sin
