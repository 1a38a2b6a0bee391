"""linear: the definition."""

from torch import Tensor
from torch.nn import functional


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`x weightᵀ + bias`, summed in float32 and rounded once. x: [..., in], weight: [out, in], bias: [out]."""
    return functional.linear(x, weight, bias)
