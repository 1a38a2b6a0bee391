"""Normalisation layers."""

import torch
from torch import Tensor, nn

from quire.layers.stored import StoredTensor
from quire.layers.weights import Expected, Wanted, WeightPolicy, dense
from quire.ops.functional import add_rms_norm, layer_norm, rms_norm


class RMSNorm(nn.Module):
    """x / rms(x) * (weight + offset); Gemma stores weights around 0 and adds 1."""

    weight: Tensor

    def __init__(self, name: str, size: int, eps: float, policy: WeightPolicy, *, offset: float = 0.0) -> None:
        super().__init__()
        self._name = name
        self.eps = eps
        self.offset = offset
        self.register_buffer("weight", torch.empty(size, dtype=policy.dtype, device=policy.device), persistent=False)

    def expected(self) -> Expected:
        yield f"{self._name}.weight", Wanted(tuple(self.weight.shape), self._take)

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps, self.offset)

    def add(self, x: Tensor, added: Tensor) -> tuple[Tensor, Tensor]:
        """`x + added`, and its norm; `x` may be overwritten."""
        return add_rms_norm(x, added, self.weight, self.eps, self.offset)

    def _take(self, stored: StoredTensor) -> None:
        self.weight.copy_(dense(stored, self.weight.dtype))


class LayerNorm(nn.Module):
    """The classic one, with mean and bias."""

    weight: Tensor
    bias: Tensor

    def __init__(self, name: str, size: int, eps: float, policy: WeightPolicy) -> None:
        super().__init__()
        self._name = name
        self._eps = eps
        for tensor in ("weight", "bias"):
            empty = torch.empty(size, dtype=policy.dtype, device=policy.device)
            self.register_buffer(tensor, empty, persistent=False)

    def expected(self) -> Expected:
        shape = tuple(self.weight.shape)
        yield f"{self._name}.weight", Wanted(shape, lambda stored: self._take(self.weight, stored))
        yield f"{self._name}.bias", Wanted(shape, lambda stored: self._take(self.bias, stored))

    def forward(self, x: Tensor) -> Tensor:
        return layer_norm(x, self.weight, self.bias, self._eps)

    def add(self, x: Tensor, added: Tensor) -> tuple[Tensor, Tensor]:
        """`x + added`, and its norm."""
        total = x + added
        return total, self(total)

    def _take(self, target: Tensor, stored: StoredTensor) -> None:
        target.copy_(dense(stored, target.dtype))


Norm = RMSNorm | LayerNorm
