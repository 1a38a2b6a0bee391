"""Weights in a floating-point dtype that the device computes in."""

from torch import Tensor
from torch.nn import functional

from quire.layers.quant.base import Weight


class DenseWeight(Weight):
    """A plain matrix [out, in]."""

    values: Tensor

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.register_buffer("values", values, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.values)

    def rows(self, ids: Tensor) -> Tensor:
        return self.values[ids]
