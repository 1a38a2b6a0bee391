"""add_rms_norm: a residual stream takes what a block adds, and the next block reads its norm."""

from torch import Tensor

from quire.ops.reference.rms_norm import rms_norm


def add_rms_norm(x: Tensor, added: Tensor, weight: Tensor, eps: float, offset: float = 0.0) -> tuple[Tensor, Tensor]:
    total = x + added
    return total, rms_norm(total, weight, eps, offset)
