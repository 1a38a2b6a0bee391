"""The ternary types: every element is -1, 0 or 1 times the block's scale. Block layouts in bytes:

TQ1_0  five elements a byte 48 | four elements a byte 4 | d 2      TQ2_0  four elements a byte 64 | d 2
"""

import torch
from torch import Tensor

from quire.ops.reference.gguf.unpack import fields, half


def tq1_0(blocks: Tensor) -> Tensor:
    return half(blocks[:, 52:]) * (tq1_0_digits(blocks).float() - 1)


def tq1_0_digits(blocks: Tensor) -> Tensor:
    """0, 1 or 2: uint8 [blocks, 256]."""
    parts = _digits(blocks[:, :32], 5), _digits(blocks[:, 32:48], 5), _digits(blocks[:, 48:52], 4)
    return torch.cat(parts, dim=1).to(torch.uint8)


def tq2_0(blocks: Tensor) -> Tensor:
    return half(blocks[:, 64:]) * (fields(blocks[:, :64], 2, 32).float() - 1)


def _digits(data: Tensor, count: int) -> Tensor:
    """The first base-3 digits of bytes that hold fractions of 256: all first digits, then all second ones."""
    powers = torch.tensor([3**power for power in range(count)], dtype=torch.uint8, device=data.device)
    # Products past 255 wrap around, which drops the digits before the wanted one.
    rests = data.unsqueeze(1) * powers.view(1, -1, 1)
    return ((rests.short() * 3) >> 8).view(data.shape[0], -1)
