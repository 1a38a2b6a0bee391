"""Normalisation layers."""

from functools import partial

import torch
from torch import Tensor, nn

from quire.layers.policy import WeightPolicy
from quire.layers.stored import StoredTensor
from quire.layers.weights import Expected, ExpectedTensors, dense
from quire.ops.functional import add_layer_norm, add_rms_norm, layer_norm, rms_norm
from quire.spec.norm import NormSpec


class Norm(nn.Module):
    """RMS norm or the classic one, as its spec says."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, spec: NormSpec, policy: WeightPolicy) -> None:
        super().__init__()
        self.spec = spec
        ones = torch.ones(spec.shape, dtype=policy.dtype, device=policy.device)
        self.register_buffer("weight", ones, persistent=False)
        self.register_buffer("bias", torch.empty_like(ones) if spec.bias else None, persistent=False)

    def expected(self) -> ExpectedTensors:
        for number, tensor in enumerate(self.spec.tensors()):
            yield Expected(tensor.name, tensor.shape, partial(self._take, number, tensor.ending))

    def forward(self, x: Tensor) -> Tensor:
        if self.spec.kind == "rms":
            return rms_norm(x, self.weight, self.spec.eps, self.spec.offset)
        if self.spec.kind == "scale":
            return x * self.weight
        return layer_norm(x, self.weight, self.bias, self.spec.eps)

    def add(self, x: Tensor, added: Tensor) -> tuple[Tensor, Tensor]:
        """`x + added`, and its norm; `x` may be overwritten."""
        if self.spec.kind == "rms":
            return add_rms_norm(x, added, self.weight, self.spec.eps, self.spec.offset)
        return add_layer_norm(x, added, self.weight, self.bias, self.spec.eps)

    def _take(self, number: int, ending: str, stored: StoredTensor) -> None:
        target = self.bias if ending == "bias" else self.weight
        assert target is not None
        target = target[number] if self.spec.one_a_head else target
        target.copy_(dense(stored, target.dtype))
