"""Numbers in a cache of 8 bits: how keys and values become such, and what they stand for.

- fp8 (either format): a number is divided by its layer's scale, and what is out of range becomes the largest there is.
- int8: each vector has a scale of its own, its largest magnitude over 127. Of a block, the numbers lie first,
  [block_size, kv_heads, head_dim], then the scales as float32 [kv_heads, block_size].
"""

import torch
from torch import Tensor

from quire.core.kv_bytes import INT8_SCALE

FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)


def to_fp8(x: Tensor, dtype: torch.dtype, scale: Tensor | float) -> Tensor:
    most = torch.finfo(dtype).max
    return (x.float() / scale).clamp(-most, most).to(dtype)


def to_int8(x: Tensor) -> tuple[Tensor, Tensor]:
    """[..., size] as int8, and float32 [...]: what they are to be multiplied by.

    Bytes cannot hold NaN and infinity: the scale of a vector that has one is NaN.
    """
    wide = x.float()
    largest = wide.abs().amax(-1, keepdim=True)
    inverse = torch.where(largest > 1e-30, 127 / largest, 0.0)  # of less it would be infinite
    is_number = largest.isfinite()
    numbers = torch.where(is_number, (wide * inverse).round(), 1.0).to(torch.int8)
    return numbers, torch.where(is_number, largest / 127, torch.nan).squeeze(-1)


def int8_parts(plane: Tensor) -> tuple[Tensor, Tensor]:
    """Views of a cache [blocks, block_size, kv_heads, head_dim + 4]: its numbers [blocks, block_size, kv_heads,
    head_dim], and the bytes of their scales [blocks, kv_heads, block_size, 4].
    """
    blocks, block_size, kv_heads, width = plane.shape
    flat = plane.view(blocks, -1)
    numbers = block_size * kv_heads * (width - INT8_SCALE)
    return (
        flat[:, :numbers].view(blocks, block_size, kv_heads, width - INT8_SCALE),
        flat[:, numbers:].view(blocks, kv_heads, block_size, INT8_SCALE),
    )


def read_blocks(plane: Tensor, blocks: Tensor, scale: Tensor | None) -> Tensor:
    """[blocks × block_size, kv_heads, head_dim] of what a cache's blocks stand for, in float32."""
    if plane.dtype == torch.int8:
        numbers, scale_bytes = int8_parts(plane)
        scales = scale_bytes[blocks].contiguous().view(torch.float32)  # [blocks, kv_heads, block_size, 1]
        return (numbers[blocks].float() * scales.transpose(1, 2)).flatten(0, 1)
    read = plane[blocks].flatten(0, 1).float()
    return read if scale is None else read * scale


def write_slots(x: Tensor, plane: Tensor, slots: Tensor, scale: Tensor | None) -> None:
    """Slot s is token s % block_size of block s // block_size."""
    if plane.dtype == torch.int8:
        block_size = plane.shape[1]
        numbers, scale_bytes = int8_parts(plane)
        stored, scales = to_int8(x)
        block, within = slots // block_size, slots % block_size
        numbers[block, within] = stored
        scale_bytes[block, :, within] = scales.unsqueeze(-1).contiguous().view(torch.int8)
        return
    by_slot = plane.view(-1, *plane.shape[2:])
    if plane.dtype in FP8:  # torch moves its bytes about
        narrow = to_fp8(x, plane.dtype, 1.0 if scale is None else scale)
        by_slot.view(torch.uint8)[slots] = narrow.view(torch.uint8)
    else:
        by_slot[slots] = x.to(plane.dtype)
