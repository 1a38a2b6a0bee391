"""layer_norm: the definition."""

from torch import Tensor
from torch.nn import functional


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """`(x - mean) / deviation * weight + bias`."""
    return functional.layer_norm(x, weight.shape, weight, bias, eps)
