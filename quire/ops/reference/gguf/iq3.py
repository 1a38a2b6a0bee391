"""The three-bit IQ types: codes name rows of four magnitudes in a codebook; signs are apart. Block layouts in bytes:

IQ3_XXS  d 2 | codes 64 | scales and signs 32
IQ3_S    d 2 | codes 64 | high code bits 8 | signs 32 | scales 4
"""

from torch import Tensor

from quire.ops.reference.gguf.grids import GridBlocks, grid_blocks
from quire.ops.reference.gguf.iq2 import scales_and_signs
from quire.ops.reference.gguf.unpack import fields, unsigned32


def iq3_xxs(blocks: Tensor) -> GridBlocks:
    scales, signs = scales_and_signs(unsigned32(blocks[:, 66:]))
    return grid_blocks("IQ3_XXS", "iq3_xxs", blocks[:, 2:66], signs, scales, blocks[:, :2])


def iq3_s(blocks: Tensor) -> GridBlocks:
    rows = blocks[:, 2:66].long() | fields(blocks[:, 66:74], 1, 1).long() << 8
    return grid_blocks("IQ3_S", "iq3_s", rows, blocks[:, 74:106], fields(blocks[:, 106:], 4, 1), blocks[:, :2])
