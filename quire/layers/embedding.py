"""Embedding: rows of a matrix by token id; the same matrix may be the output head."""

from torch import Tensor, nn

from quire.layers.quant.base import Weight
from quire.layers.quant.dense import DenseWeight
from quire.layers.quant.gguf import GgufWeight
from quire.layers.quant.packed import PackedWeight
from quire.layers.stored import StoredTensor
from quire.layers.weights import Expected, Wanted, WeightPolicy, dense, stored_rows


class Embedding(nn.Module):
    """[count, size], looked up; `project` multiplies by its transpose (tied output heads)."""

    def __init__(self, name: str, count: int, size: int, policy: WeightPolicy) -> None:
        super().__init__()
        self._name = name
        self._shape = (count, size)
        self._policy = policy
        self._weight: Weight | None = None

    def expected(self) -> Expected:
        yield f"{self._name}.weight", Wanted(self._shape, self._take)

    def forward(self, ids: Tensor) -> Tensor:
        return self._loaded().rows(ids).to(self._policy.dtype)

    def project(self, x: Tensor) -> Tensor:
        """x Eᵀ: [tokens, size] to [tokens, count]."""
        output: Tensor = self._loaded()(x)
        return output

    def _loaded(self) -> Weight:
        assert self._weight is not None, f"{self._name} was not loaded"
        return self._weight

    def _take(self, stored: StoredTensor) -> None:
        if self._policy.packing is not None:
            rows = stored_rows(stored, self._policy)
            self._weight = PackedWeight(self._policy.packing.linear(self._name, [rows], self._shape[1], None))
        elif stored.is_quantized and self._policy.keep_quantized:
            self._weight = GgufWeight(stored.kind, self._policy.place(stored.data), self._shape)
        else:
            self._weight = DenseWeight(self._policy.place(dense(stored, self._policy.dtype)))
