"""layer_norm: the definition."""

from torch import Tensor
from torch.nn import functional


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    """`(x - mean) / deviation * weight + bias`; no bias is a bias of 0."""
    return functional.layer_norm(x, weight.shape, weight, bias, eps)
