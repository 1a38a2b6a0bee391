"""The four-bit IQ types: every code names one of sixteen fixed, unevenly spaced values. Block layouts in bytes:

IQ4_NL  d 2 | q 16                                      (32 elements)
IQ4_XS  d 2 | high scales 2 | low scales 4 | q 128      (256 elements)
"""

import torch
from torch import Tensor

from quire.ops.code_tables import IQ4
from quire.ops.reference.gguf.unpack import fields, half, unsigned16


def iq4_nl(blocks: Tensor) -> Tensor:
    return half(blocks[:, :2]) * _values(blocks[:, 2:])


def iq4_xs(blocks: Tensor) -> Tensor:
    scales = half(blocks[:, :2]) * (scale_bits(blocks).float() - 32)
    return (scales.unsqueeze(2) * _values(blocks[:, 8:]).view(-1, 8, 32)).view(-1, 256)


def scale_bits(blocks: Tensor) -> Tensor:
    """The eight scales of IQ4_XS, of six bits: int32 [blocks, 8]."""
    shifts = torch.arange(0, 16, 2, dtype=torch.int32, device=blocks.device)
    high = (unsigned16(blocks[:, 2:4]) >> shifts) & 3
    return fields(blocks[:, 4:8], 4, 1) | high << 4


def _values(data: Tensor) -> Tensor:
    table = torch.tensor(IQ4, dtype=torch.float32, device=data.device)
    return table[fields(data, 4, 16).long()]
