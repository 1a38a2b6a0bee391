"""gated_activation: the definition."""

from torch import Tensor
from torch.nn import functional


def gated_activation(gate_up: Tensor, activation: str) -> Tensor:
    """`activation(gate) * up` for [gate | up] in the last dimension."""
    gate, up = gate_up.chunk(2, dim=-1)
    if activation == "silu":
        return functional.silu(gate) * up
    return functional.gelu(gate, approximate="tanh" if activation == "gelu_tanh" else "none") * up
