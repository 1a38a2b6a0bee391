"""Experts: the matrices of all experts of a layer, of which a token multiplies with those that it is given."""

from torch import Tensor, nn

from quire.layers.policy import WeightPolicy
from quire.layers.weights import ExpectedTensors
from quire.ops.functional import experts_mlp
from quire.spec.experts import ExpertsSpec


class Experts(nn.Module):
    """Two stacks in the formats of Linear: gates and ups of all experts, and their downs."""

    def __init__(self, spec: ExpertsSpec, policy: WeightPolicy) -> None:
        super().__init__()
        self._activation = spec.activation
        self._weighs_input = spec.weighs_input
        self._up = policy.weight(spec.up)
        self._down = policy.weight(spec.down)

    def expected(self) -> ExpectedTensors:
        yield from self._up.expected()
        yield from self._down.expected()

    def forward(self, x: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
        """x: [tokens, hidden]; `ids` and `weights` [tokens, top_k] are a router's."""
        return experts_mlp(
            x,
            ids,
            weights,
            self._up.stack(),
            self._down.stack(),
            self._activation,
            up_bias=self._up.bias,
            down_bias=self._down.bias,
            weighs_input=self._weighs_input,
        )
