"""Codes of 4 bits, two a byte, as a QuantizedMatrix holds them: the first half of a chunk low, the second high."""

import torch
from torch import Tensor


def pack_nibbles(codes: Tensor, chunk: int) -> Tensor:
    """uint8 [rows, columns] of 0 to 15 to uint8 [rows, columns / 2]."""
    rows, columns = codes.shape
    halves = codes.to(torch.uint8).reshape(rows, columns // chunk, 2, chunk // 2)
    return (halves[:, :, 0] | halves[:, :, 1] << 4).reshape(rows, columns // 2)


def unpack_nibbles(packed: Tensor, chunk: int) -> Tensor:
    """uint8 [rows, columns / 2] to uint8 [rows, columns] of 0 to 15."""
    rows, half = packed.shape
    chunks = packed.reshape(rows, 2 * half // chunk, chunk // 2)
    return torch.stack((chunks & 15, chunks >> 4), dim=2).reshape(rows, 2 * half)
