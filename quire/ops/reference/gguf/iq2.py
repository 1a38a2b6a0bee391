"""The two-bit IQ types: codes name rows of eight magnitudes in a codebook; signs are apart. Block layouts in bytes:

IQ2_XXS  d 2 | 8 × (codes 4 | scale and signs 4)
IQ2_XS   d 2 | 32 × (code and signs 2) | scales 8
IQ2_S    d 2 | codes 32 | signs 32 | high code bits 8 | scales 8
"""

import torch
from torch import Tensor

from quire.ops.reference.gguf.codebooks import codebook, even_signs
from quire.ops.reference.gguf.unpack import fields, half, signs, unsigned16, unsigned32


def iq2_xxs(blocks: Tensor) -> Tensor:
    scales, factors = scaled_signs(unsigned32(blocks[:, 2:])[:, 1::2])
    scales = half(blocks[:, :2]) * scales * 0.25
    codes = blocks[:, 2:].reshape(-1, 8, 8)[:, :, :4]
    magnitudes = codebook("IQ2_XXS", blocks.device)[codes.long()]
    return (scales.view(-1, 8, 1, 1) * magnitudes * factors).view(-1, 256)


def iq2_xs(blocks: Tensor) -> Tensor:
    packed = unsigned16(blocks[:, 2:66])
    magnitudes = codebook("IQ2_XS", blocks.device)[packed & 511]
    factors = signs(even_signs(blocks.device)[packed >> 9])
    return _sixteens(blocks, blocks[:, 66:], magnitudes, factors)


def iq2_s(blocks: Tensor) -> Tensor:
    codes = blocks[:, 2:34].long() | fields(blocks[:, 66:74], 2, 1).long() << 8
    return _sixteens(blocks, blocks[:, 74:], codebook("IQ2_S", blocks.device)[codes], signs(blocks[:, 34:66]))


def scaled_signs(packed: Tensor) -> tuple[Tensor, Tensor]:
    """32-bit words that hold a scale in their highest four bits and below it four codes of eight signs.

    [blocks, 8] to scales of [blocks, 8] and factors of [blocks, 8, 4, 8].
    """
    shifts = torch.tensor((0, 7, 14, 21), device=packed.device)
    codes = (packed.unsqueeze(-1) >> shifts) & 127
    return 0.5 + (packed >> 28).float(), signs(even_signs(packed.device)[codes])


def _sixteens(blocks: Tensor, scales: Tensor, magnitudes: Tensor, factors: Tensor) -> Tensor:
    """Scale groups of sixteen elements; magnitudes and factors are [blocks, 32, 8]."""
    groups = half(blocks[:, :2]) * (0.5 + fields(scales, 4, 1).float()) * 0.25
    return (groups.view(-1, 16, 1, 1) * magnitudes.view(-1, 16, 2, 8) * factors.view(-1, 16, 2, 8)).view(-1, 256)
