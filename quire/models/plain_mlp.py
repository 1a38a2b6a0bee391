"""PlainMLP: the MLP of models that came before gates."""

from torch import Tensor, nn
from torch.nn import functional

from quire.layers.linear import Linear


class PlainMLP(nn.Module):
    """down(gelu(up(x)))."""

    def __init__(self, up: Linear, down: Linear, approximate: str) -> None:
        super().__init__()
        self._up = up
        self._down = down
        self._approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self._down(functional.gelu(self._up(x), approximate=self._approximate))
        return output
