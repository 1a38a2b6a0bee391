"""add_layer_norm: a residual stream takes what a block adds, and the next block reads its layer norm."""

from torch import Tensor

from quire.ops.reference.layer_norm import layer_norm


def add_layer_norm(x: Tensor, added: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    total = x + added
    return total, layer_norm(total, weight, bias, eps)
