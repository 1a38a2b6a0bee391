"""MXFP4 as gpt-oss's checkpoints store it: two neighbouring columns a byte, a power of two for each 32 columns."""

from collections.abc import Mapping

import torch
from torch import Tensor

from quire.core.quantized import chunk_columns
from quire.ops.bit_planes import pack_bits
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.ops.reference.gguf.microscaling import powers_of_two
from quire.spec.quantization import WeightScheme

_ROWS_AT_ONCE = 2**16
"""Codes of a byte each take twice the memory of those in the file."""


def read_mxfp4(scheme: WeightScheme, tensors: Mapping[str, Tensor], name: str) -> QuantizedMatrix:
    blocks, scales = tensors["blocks"].flatten(1), powers_of_two(tensors["scales"])
    assert scheme.group is not None
    columns = 2 * blocks.shape[1]
    chunk = chunk_columns(scheme.group, columns)
    values = torch.cat([_rearranged(part, chunk) for part in torch.split(blocks, _ROWS_AT_ONCE)])
    return QuantizedMatrix("fp4", values, scales, None, columns, scheme.group)


def _rearranged(blocks: Tensor, chunk: int) -> Tensor:
    codes = torch.stack((blocks & 15, blocks >> 4), dim=-1).flatten(1)
    return pack_bits(codes, 4, chunk)
