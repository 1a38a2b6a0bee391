"""Embedding: rows of a matrix by token id; the same matrix may be the output head."""

from torch import Tensor, nn

from quire.layers.policy import WeightPolicy
from quire.layers.quant.base import Weight
from quire.layers.weights import ExpectedTensors
from quire.ops.functional import add_lora, embed_lora
from quire.ops.lora_tensors import AdapterRows, LoraMatrix
from quire.spec.matrix import MatrixSpec


class Embedding(nn.Module):
    """[count, size], looked up; `project` multiplies by its transpose (tied output heads)."""

    def __init__(self, matrix: MatrixSpec, policy: WeightPolicy) -> None:
        super().__init__()
        self._weight = policy.weight(matrix)
        self._dtype = policy.dtype
        self.matrix = matrix
        self.lora: LoraMatrix | None = None
        """What adapters add to looked up rows; None: nothing ever."""
        self.head_lora: LoraMatrix | None = None
        """What they add to the output head that the same matrix is."""

    @property
    def weight(self) -> Weight:
        return self._weight

    def expected(self) -> ExpectedTensors:
        return self._weight.expected()

    def forward(self, ids: Tensor, adapters: AdapterRows | None = None) -> Tensor:
        rows = self._weight.rows(ids).to(self._dtype)
        return rows if adapters is None or self.lora is None else embed_lora(rows, ids, self.lora, adapters)

    def project(self, x: Tensor, adapters: AdapterRows | None = None) -> Tensor:
        """x Eᵀ: [tokens, size] to [tokens, count]."""
        output: Tensor = self._weight(x)
        return output if adapters is None or self.head_lora is None else add_lora(output, x, self.head_lora, adapters)

    def base(self, x: Tensor) -> Tensor:
        """x Eᵀ in float32, without adapters."""
        output: Tensor = self._weight(x)
        return output.float()
