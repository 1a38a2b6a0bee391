"""gated_activation: the definition."""

from torch import Tensor

from quire.ops.reference.activate import activate


def gated_activation(gate_up: Tensor, activation: str) -> Tensor:
    """`activation(gate) * up` for [gate | up] in the last dimension."""
    gate, up = gate_up.chunk(2, dim=-1)
    return activate(gate, activation) * up
