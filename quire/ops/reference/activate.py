"""activate: the definition of the activations that checkpoints use."""

import torch
from torch import Tensor
from torch.nn import functional


def activate(x: Tensor, activation: str) -> Tensor:
    """silu, relu, gelu, or gelu by its tanh or its sigmoid approximation."""
    if activation == "silu":
        return functional.silu(x)
    if activation == "relu":
        return functional.relu(x)
    if activation == "quick_gelu":
        return x * torch.sigmoid(1.702 * x)
    return functional.gelu(x, approximate="tanh" if activation == "gelu_tanh" else "none")
