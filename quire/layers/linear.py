"""Linear: y = x Wᵀ + b. Its weight's method knows the format and the device; this knows neither."""

from torch import Tensor, nn

from quire.layers.policy import WeightPolicy
from quire.layers.weights import ExpectedTensors
from quire.spec.matrix import MatrixSpec


class Linear(nn.Module):
    """The rows of all of the matrix's parts in order."""

    def __init__(self, matrix: MatrixSpec, policy: WeightPolicy) -> None:
        super().__init__()
        self._weight = policy.weight(matrix)

    def expected(self) -> ExpectedTensors:
        """The tensors this layer takes."""
        return self._weight.expected()

    @property
    def values(self) -> Tensor:
        """The matrix itself, where its spec wants it plain."""
        values = self._weight.stack()
        assert isinstance(values, Tensor), "it is quantized"
        return values

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self._weight(x)
        return output
