"""The K types: 256 elements a block, cut into groups with small scales of their own. Block layouts in bytes:

Q2_K  scales and minima 16 | q 64 | d 2 | dmin 2
Q3_K  high bits 32 | q 64 | scales 12 | d 2
Q4_K  d 2 | dmin 2 | scales and minima 12 | q 128
Q5_K  d 2 | dmin 2 | scales and minima 12 | high bits 32 | q 128
Q6_K  q 128 | high bits 64 | scales 16 (signed) | d 2
Q8_K  d 4 (float32) | q 256 (signed) | sums 32
"""

import torch
from torch import Tensor

from quire.ops.reference.gguf.unpack import fields, half, single


def q2_k(blocks: Tensor) -> Tensor:
    scales = half(blocks[:, 80:82]) * (blocks[:, :16] & 15).float()
    minima = half(blocks[:, 82:84]) * (blocks[:, :16] >> 4).float()
    return _grouped(scales, fields(blocks[:, 16:80], 2, 32).float(), minima)


def q3_k(blocks: Tensor) -> Tensor:
    scales = six_bit_scales(blocks[:, 96:108]).float() - 32
    # A high bit of 1 means that nothing is subtracted.
    missing = (fields(blocks[:, :32], 1, 32) ^ 1).float() * 4
    return _grouped(half(blocks[:, 108:110]) * scales, fields(blocks[:, 32:96], 2, 32).float() - missing)


def six_bit_scales(packed: Tensor) -> Tensor:
    """Sixteen, in twelve bytes: the upper two bits of each lie in the last four."""
    return fields(packed[:, :8], 4, 8) | fields(packed[:, 8:], 2, 4) << 4


def q4_k(blocks: Tensor) -> Tensor:
    scales, minima = _scales_and_minima(blocks)
    return _grouped(scales, fields(blocks[:, 16:], 4, 32).float(), minima)


def q5_k(blocks: Tensor) -> Tensor:
    scales, minima = _scales_and_minima(blocks)
    q = fields(blocks[:, 48:], 4, 32) | fields(blocks[:, 16:48], 1, 32) << 4
    return _grouped(scales, q.float(), minima)


def q6_k(blocks: Tensor) -> Tensor:
    scales = half(blocks[:, 208:210]) * blocks[:, 192:208].view(torch.int8).float()
    q = fields(blocks[:, :128], 4, 64) | fields(blocks[:, 128:192], 2, 32) << 4
    return _grouped(scales, q.float() - 32)


def q8_k(blocks: Tensor) -> Tensor:
    return single(blocks[:, :4]) * blocks[:, 4:260].view(torch.int8).float()


def _scales_and_minima(blocks: Tensor) -> tuple[Tensor, Tensor]:
    scales, minima = six_bits(blocks[:, 4:16])
    return half(blocks[:, :2]) * scales.float(), half(blocks[:, 2:4]) * minima.float()


def six_bits(packed: Tensor) -> tuple[Tensor, Tensor]:
    """Eight scales and eight minima of six bits each, in twelve bytes: the lower four bits of the last four of each
    lie in the last four bytes, and their upper two bits on top of the first four of each."""
    low_scales, low_minima, both = packed.reshape(-1, 3, 4).unbind(1)
    scales = torch.cat((low_scales & 63, both & 15 | (low_scales >> 2) & 48), dim=1)
    minima = torch.cat((low_minima & 63, both >> 4 | (low_minima >> 2) & 48), dim=1)
    return scales, minima


def _grouped(scales: Tensor, values: Tensor, minima: Tensor | None = None) -> Tensor:
    """scale * value - minimum, with one scale and one minimum a group: [blocks, groups] and [blocks, 256]."""
    groups = scales.unsqueeze(2) * values.view(*scales.shape, -1)
    return (groups if minima is None else groups - minima.unsqueeze(2)).view_as(values)
