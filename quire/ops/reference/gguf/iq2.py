"""The two-bit IQ types: codes name rows of eight magnitudes in a codebook; signs are apart. Block layouts in bytes:

IQ2_XXS  d 2 | 8 × (codes 4 | scale and signs 4)
IQ2_XS   d 2 | 32 × (code and signs 2) | scales 8
IQ2_S    d 2 | codes 32 | signs 32 | high code bits 8 | scales 8
"""

import torch
from torch import Tensor

from quire.ops.reference.gguf.codebooks import even_signs
from quire.ops.reference.gguf.grids import GridBlocks, grid_blocks
from quire.ops.reference.gguf.unpack import fields, unsigned16, unsigned32


def iq2_xxs(blocks: Tensor) -> GridBlocks:
    scales, signs = scales_and_signs(unsigned32(blocks[:, 2:])[:, 1::2])
    rows = blocks[:, 2:].reshape(-1, 8, 8)[:, :, :4]
    return grid_blocks("IQ2_XXS", "iq2", rows, signs, scales, blocks[:, :2])


def iq2_xs(blocks: Tensor) -> GridBlocks:
    packed = unsigned16(blocks[:, 2:66])
    signs = even_signs(blocks.device)[packed >> 9]
    return grid_blocks("IQ2_XS", "iq2", packed & 511, signs, fields(blocks[:, 66:], 4, 1), blocks[:, :2])


def iq2_s(blocks: Tensor) -> GridBlocks:
    rows = blocks[:, 2:34].long() | fields(blocks[:, 66:74], 2, 1).long() << 8
    return grid_blocks("IQ2_S", "iq2", rows, blocks[:, 34:66], fields(blocks[:, 74:], 4, 1), blocks[:, :2])


def scales_and_signs(packed: Tensor) -> tuple[Tensor, Tensor]:
    """32-bit words that hold a scale in their highest four bits and below it four codes of eight signs.

    [blocks, 8] to scales of [blocks, 8] and signs of uint8 [blocks, 32], a bit each.
    """
    shifts = torch.tensor((0, 7, 14, 21), device=packed.device)
    codes = (packed.unsqueeze(-1) >> shifts) & 127
    return packed >> 28, even_signs(packed.device)[codes].view(-1, 32)
