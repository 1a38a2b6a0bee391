"""Four-bit floats (E2M1) under a shared scale. Block layouts in bytes:

MXFP4  scale 1 (a power of two) | q 16                      (32 elements)
NVFP4  4 scales 4 (unsigned E4M3) | q 32                    (64 elements, 16 a scale)
"""

import torch
from torch import Tensor

from quire.ops.reference.gguf.unpack import fields

_DOUBLED = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""What the sixteen codes stand for, times two; scales are halved in turn."""


def powers_of_two(exponents: Tensor) -> Tensor:
    """The scales that bytes of MXFP4 stand for, in bfloat16, which holds all of them: 2^(exponent - 127)."""
    # the bits above a mantissa of 7; the smallest is below the normal range
    bits = exponents.to(torch.int16) << 7
    return torch.where(exponents == 0, 0x0040, bits).to(torch.int16).view(torch.bfloat16)


def mxfp4(blocks: Tensor) -> Tensor:
    exponents = blocks[:, :1].int()
    # Half of 2^(exponent - 127), built from its bits; the two smallest are below float32's normal range.
    bits = torch.where(exponents < 2, 0x00200000 << exponents.clamp(max=1), (exponents - 1) << 23)
    return bits.view(torch.float32) * _values(blocks[:, 1:], 16)


def nvfp4(blocks: Tensor) -> Tensor:
    scales = unsigned_e4m3(blocks[:, :4]).unsqueeze(2)
    return (0.5 * scales * _values(blocks[:, 4:], 8).view(-1, 4, 16)).view(-1, 64)


def _values(data: Tensor, width: int) -> Tensor:
    table = torch.tensor(_DOUBLED, dtype=torch.float32, device=data.device)
    return table[fields(data, 4, width).long()]


def unsigned_e4m3(data: Tensor) -> Tensor:
    """The sign bit is not looked at, and the code that would be NaN counts as zero."""
    exponent, mantissa = (data >> 3 & 15).float(), (data & 7).float()
    values = torch.where(exponent == 0, mantissa * 2**-9, (1 + mantissa / 8) * torch.exp2(exponent - 7))
    return torch.where((data == 0) | (data == 0x7F), 0.0, values)
