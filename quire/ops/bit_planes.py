"""Codes of less than a byte, several a byte, as a QuantizedMatrix holds them (see its `chunk`)."""

import torch
from torch import Tensor


def pack_bits(codes: Tensor, bits: int, chunk: int) -> Tensor:
    """uint8 [rows, columns] of codes below 2**bits to uint8 [rows, columns * bits / 8]."""
    rows = codes.shape[0]
    fields = codes.to(torch.uint8).reshape(rows, -1, 8 // bits, chunk * bits // 8) << _shifts(bits, codes)
    return fields.sum(2, dtype=torch.uint8).view(rows, -1)


def unpack_bits(plane: Tensor, bits: int, chunk: int) -> Tensor:
    """uint8 [rows, columns * bits / 8] to uint8 [rows, columns]: what `pack_bits` undoes."""
    rows = plane.shape[0]
    chunks = plane.reshape(rows, -1, 1, chunk * bits // 8)
    return (chunks >> _shifts(bits, plane) & (1 << bits) - 1).view(rows, -1)


def _shifts(bits: int, of: Tensor) -> Tensor:
    return torch.arange(0, 8, bits, dtype=torch.uint8, device=of.device).view(1, 1, -1, 1)
