"""Mlp: what a layer does to each token by itself."""

from torch import Tensor, nn

from quire.layers.linear import Linear
from quire.layers.policy import WeightPolicy
from quire.ops.functional import activate, gated_activation
from quire.ops.lora_tensors import AdapterRows
from quire.spec.mlp import MlpSpec


class Mlp(nn.Module):
    """down(activation(gate(x)) * up(x)), or without a gate down(activation(up(x)))."""

    def __init__(self, spec: MlpSpec, policy: WeightPolicy) -> None:
        super().__init__()
        self._up = Linear(spec.up, policy)
        self._down = Linear(spec.down, policy)
        self._activation = spec.activation
        self._activate = gated_activation if spec.gated else activate

    def forward(self, x: Tensor, adapters: AdapterRows | None = None) -> Tensor:
        output: Tensor = self._down(self._activate(self._up(x, adapters), self._activation), adapters)
        return output
