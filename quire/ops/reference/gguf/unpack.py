"""Numbers out of the bytes of ggml blocks: fields of a few bits, floats and wider integers, all little-endian.

Every function takes uint8 with one block a row and works on all blocks at once.
"""

import torch
from torch import Tensor


def fields(data: Tensor, bits: int, width: int) -> Tensor:
    """The fields of `bits` bits of each byte, lowest first; the order is: of `width` bytes all first fields, then all
    second ones, and so on, then the next `width` bytes. [blocks, bytes] to uint8 [blocks, fields]."""
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=data.device).view(1, 1, -1, 1)
    groups = data.reshape(data.shape[0], -1, 1, width)
    mask = 2**bits - 1
    return groups.bitwise_right_shift(shifts).bitwise_and_(mask).view(data.shape[0], -1)


def half(data: Tensor) -> Tensor:
    """Half floats as float32: [blocks, 2 * count] to [blocks, count]."""
    return _aligned(data).view(torch.float16).float()


def single(data: Tensor) -> Tensor:
    """Floats: [blocks, 4 * count] to [blocks, count]."""
    return _aligned(data).view(torch.float32)


def unsigned16(data: Tensor) -> Tensor:
    """[blocks, 2 * count] to int32 [blocks, count]; torch computes little on unsigned integers."""
    return _aligned(data).view(torch.int16).int() & 0xFFFF


def unsigned32(data: Tensor) -> Tensor:
    """[blocks, 4 * count] to int64 [blocks, count]."""
    return _aligned(data).view(torch.int32).long() & 0xFFFFFFFF


def _aligned(data: Tensor) -> Tensor:
    """A copy, because bytes from the middle of a file may start anywhere and views of wider types may not."""
    return data.clone(memory_format=torch.contiguous_format)
