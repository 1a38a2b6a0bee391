"""Weights in a floating-point dtype that the device computes in."""

from torch import Tensor

from quire.layers.quant.base import Weight
from quire.ops.functional import linear


class DenseWeight(Weight):
    """A plain matrix [out, in]."""

    values: Tensor

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.register_buffer("values", values, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.values)

    def rows(self, ids: Tensor) -> Tensor:
        return self.values[ids]
