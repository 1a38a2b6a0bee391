"""The first ggml types: 32 elements a block, one scale, and for the `_1` types one minimum. Block layouts in bytes:

Q4_0  d 2 | q 16          Q4_1  d 2 | m 2 | q 16
Q5_0  d 2 | h 4 | q 16    Q5_1  d 2 | m 2 | h 4 | q 16    Q8_0  d 2 | q 32 (signed)
"""

import torch
from torch import Tensor

from quire.ops.reference.gguf.unpack import fields, half


def q4_0(blocks: Tensor) -> Tensor:
    return half(blocks[:, :2]) * (fields(blocks[:, 2:], 4, 16).float() - 8)


def q4_1(blocks: Tensor) -> Tensor:
    return half(blocks[:, :2]) * fields(blocks[:, 4:], 4, 16).float() + half(blocks[:, 2:4])


def q5_0(blocks: Tensor) -> Tensor:
    return half(blocks[:, :2]) * (five_bits(blocks[:, 2:]).float() - 16)


def q5_1(blocks: Tensor) -> Tensor:
    return half(blocks[:, :2]) * five_bits(blocks[:, 4:]).float() + half(blocks[:, 2:4])


def q8_0(blocks: Tensor) -> Tensor:
    return half(blocks[:, :2]) * blocks[:, 2:].view(torch.int8).float()


def five_bits(data: Tensor) -> Tensor:
    """Four bytes of fifth bits, then sixteen bytes of the lower four."""
    return fields(data[:, 4:], 4, 16) | fields(data[:, :4], 1, 1) << 4
