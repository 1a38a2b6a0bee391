"""Linear: y = x Wᵀ + b. Its weight's method knows the format and the device; this knows neither."""

from torch import Tensor, nn

from quire.layers.policy import WeightPolicy
from quire.layers.weights import ExpectedTensors
from quire.ops.functional import add_lora
from quire.ops.lora_tensors import AdapterRows, LoraMatrix
from quire.spec.matrix import MatrixSpec


class Linear(nn.Module):
    """The rows of all of the matrix's parts in order."""

    def __init__(self, matrix: MatrixSpec, policy: WeightPolicy) -> None:
        super().__init__()
        self._weight = policy.weight(matrix)
        self.matrix = matrix
        self.lora: LoraMatrix | None = None
        """What adapters add to the matrix; None: nothing ever."""

    def expected(self) -> ExpectedTensors:
        """The tensors this layer takes."""
        return self._weight.expected()

    @property
    def values(self) -> Tensor:
        """The matrix itself, where it is plain."""
        values = self._weight.stack()
        assert isinstance(values, Tensor), "it is quantized"
        return values

    @property
    def bias(self) -> Tensor | None:
        """What is added to its outputs."""
        return self._weight.bias

    def forward(self, x: Tensor, adapters: AdapterRows | None = None) -> Tensor:
        output: Tensor = self._weight(x)
        if adapters is None or self.lora is None:
            return output
        return add_lora(output, x, self.lora, adapters, self._weight.bias)

    def base(self, x: Tensor) -> Tensor:
        """x Wᵀ in float32: the matrix without bias or adapters, whatever format it is in."""
        output: Tensor = self._weight(x)
        return output.float() if self._weight.bias is None else output.float() - self._weight.bias.float()
