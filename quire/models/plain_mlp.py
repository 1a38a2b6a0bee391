"""PlainMLP: the MLP of models that came before gates."""

from torch import Tensor, nn

from quire.layers.linear import Linear
from quire.ops.functional import Activation, activate


class PlainMLP(nn.Module):
    """down(activation(up(x)))."""

    def __init__(self, up: Linear, down: Linear, activation: Activation) -> None:
        super().__init__()
        self._up = up
        self._down = down
        self._activation: Activation = activation

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self._down(activate(self._up(x), self._activation))
        return output
