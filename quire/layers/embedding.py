"""Embedding: rows of a matrix by token id; the same matrix may be the output head."""

from torch import Tensor, nn

from quire.layers.policy import WeightPolicy
from quire.layers.quant.base import Weight
from quire.layers.weights import ExpectedTensors
from quire.spec.matrix import MatrixSpec


class Embedding(nn.Module):
    """[count, size], looked up; `project` multiplies by its transpose (tied output heads)."""

    def __init__(self, matrix: MatrixSpec, policy: WeightPolicy) -> None:
        super().__init__()
        self._weight = policy.weight(matrix)
        self._dtype = policy.dtype

    @property
    def weight(self) -> Weight:
        return self._weight

    def expected(self) -> ExpectedTensors:
        return self._weight.expected()

    def forward(self, ids: Tensor) -> Tensor:
        return self._weight.rows(ids).to(self._dtype)

    def project(self, x: Tensor) -> Tensor:
        """x Eᵀ: [tokens, size] to [tokens, count]."""
        output: Tensor = self._weight(x)
        return output
