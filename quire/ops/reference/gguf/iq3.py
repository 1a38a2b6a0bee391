"""The three-bit IQ types: codes name rows of four magnitudes in a codebook; signs are apart. Block layouts in bytes:

IQ3_XXS  d 2 | codes 64 | scales and signs 32
IQ3_S    d 2 | codes 64 | high code bits 8 | signs 32 | scales 4
"""

from torch import Tensor

from quire.ops.reference.gguf.codebooks import codebook
from quire.ops.reference.gguf.iq2 import scaled_signs
from quire.ops.reference.gguf.unpack import fields, half, signs, unsigned32


def iq3_xxs(blocks: Tensor) -> Tensor:
    scales, factors = scaled_signs(unsigned32(blocks[:, 66:]))
    scales = half(blocks[:, :2]) * scales * 0.5
    magnitudes = codebook("IQ3_XXS", blocks.device)[blocks[:, 2:66].long()]
    return (scales.view(-1, 8, 1, 1) * magnitudes.view(-1, 8, 4, 8) * factors).view(-1, 256)


def iq3_s(blocks: Tensor) -> Tensor:
    scales = half(blocks[:, :2]) * (1 + 2 * fields(blocks[:, 106:], 4, 1).float())
    codes = blocks[:, 2:66].long() | fields(blocks[:, 66:74], 1, 1).long() << 8
    magnitudes = codebook("IQ3_S", blocks.device)[codes]
    factors = signs(blocks[:, 74:106]).view(-1, 8, 4, 8)
    return (scales.view(-1, 8, 1, 1) * magnitudes.view(-1, 8, 4, 8) * factors).view(-1, 256)
