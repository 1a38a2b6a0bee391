"""Numbers into the bytes of ggml blocks, one block a row: the inverse of `ops/reference/gguf/unpack.py`."""

import torch
from torch import Tensor


def pack_fields(values: Tensor, bits: int, width: int) -> Tensor:
    """Whole numbers [blocks, fields] to uint8 [blocks, bytes]: of `width` bytes all first fields come first, in their
    lowest `bits` bits, then all second ones, and so on."""
    each = 8 // bits
    groups = values.to(torch.uint8).view(len(values), -1, each, width)
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=values.device).view(1, 1, each, 1)
    return (groups << shifts).sum(2, dtype=torch.uint8).view(len(values), -1)


def half(values: Tensor) -> Tensor:
    """[blocks] to the two bytes of a half float: uint8 [blocks, 2]."""
    return values.to(torch.float16).view(-1, 1).view(torch.uint8)


def as_half(values: Tensor) -> Tensor:
    """float32 that a half float can hold, so that codes are chosen for what is read back."""
    return values.to(torch.float16).float()


def divided(values: Tensor, by: Tensor) -> Tensor:
    """0 where the divisor is 0."""
    return torch.where(by == 0, 0.0, values / torch.where(by == 0, 1.0, by))
