"""gated_activation: the definition."""

import torch
from torch import Tensor

from quire.ops.reference.activate import activate

CLAMPED_SWIGLU = "clamped_swiglu"
LIMIT, STEEPNESS = 7.0, 1.702
"""Of that: the largest gates and ups, and what gates are multiplied by in their sigmoid."""


def gated_activation(gate_up: Tensor, activation: str) -> Tensor:
    """`activation(gate) * up` for [gate | up] in the last dimension."""
    gate, up = gate_up.chunk(2, dim=-1)
    if activation == CLAMPED_SWIGLU:
        gate, up = gate.clamp(max=LIMIT), up.clamp(-LIMIT, LIMIT)
        return gate * torch.sigmoid(STEEPNESS * gate) * (up + 1)
    return activate(gate, activation) * up
