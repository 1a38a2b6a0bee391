"""The types below two bits: codes name rows of eight of -1, 0 and 1, all moved up or down an eighth. In bytes:

IQ1_S  d 2 | codes 32 | 8 × (high code bits, scale and direction 2)
IQ1_M  codes 32 | high code bits and directions 16 | scales 8, whose highest bits make up d
"""

import torch
from torch import Tensor

from quire.ops.reference.gguf.codebooks import codebook
from quire.ops.reference.gguf.unpack import fields, half, unsigned16

_STEP = 0.125


def iq1_s(blocks: Tensor) -> Tensor:
    high = unsigned16(blocks[:, 34:])
    scales = half(blocks[:, :2]) * (2 * ((high >> 12) & 7) + 1).float()
    steps = torch.where((high & 0x8000) == 0, _STEP, -_STEP)
    shifts = torch.tensor((0, 3, 6, 9), dtype=torch.int32, device=blocks.device)
    codes = blocks[:, 2:34].view(-1, 8, 4).long() | (((high.unsqueeze(-1) >> shifts) & 7) << 8)
    values = codebook("IQ1", blocks.device)[codes]
    return (scales.view(-1, 8, 1, 1) * (values + steps.view(-1, 8, 1, 1))).view(-1, 256)


def iq1_m(blocks: Tensor) -> Tensor:
    packed = unsigned16(blocks[:, 48:])
    shifts = torch.tensor((0, 3, 6, 9), dtype=torch.int32, device=blocks.device)
    scales = _scattered_half(packed) * (2 * ((packed.unsqueeze(-1) >> shifts) & 7) + 1).float().view(-1, 16)
    high = fields(blocks[:, 32:48], 4, 1)
    steps = torch.where((high & 8) == 0, _STEP, -_STEP)
    values = codebook("IQ1", blocks.device)[blocks[:, :32].long() | (high & 7).long() << 8]
    moved = values.view(-1, 16, 2, 8) + steps.view(-1, 16, 2, 1)
    return (scales.view(-1, 16, 1, 1) * moved).view(-1, 256)


def _scattered_half(packed: Tensor) -> Tensor:
    """A half float in four quarters, the lowest first, each in the highest four bits of a word: [blocks, 4] to
    float32 [blocks, 1]."""
    shifts = torch.tensor((12, 8, 4, 0), dtype=torch.int32, device=packed.device)
    bits = ((packed & 0xF000) >> shifts).sum(1, keepdim=True)
    return bits.to(torch.int16).view(torch.float16).float()
