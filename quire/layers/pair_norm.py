"""PairNorm: of two vectors that lie side by side, each by a norm of its own."""

from functools import partial

import torch
from torch import Tensor, nn

from quire.core.errors import CheckpointError
from quire.layers.policy import WeightPolicy
from quire.layers.stored import StoredTensor
from quire.layers.weights import Expected, ExpectedTensors, dense
from quire.ops.functional import rms_norm
from quire.spec.norm import NormSpec


class PairNorm(nn.Module):
    """RMS norms of [tokens, 2 * size], as heads that draft have them of a word and a feature."""

    weight: Tensor  # [2, size]

    def __init__(self, first: NormSpec, second: NormSpec, policy: WeightPolicy) -> None:
        super().__init__()
        if {first.kind, second.kind} != {"rms"} or first.eps != second.eps or first.offset != second.offset:
            raise CheckpointError(f"{first.name} and {second.name} are not two RMS norms of one kind")
        self._specs = (first, second)
        ones = torch.ones((2, *first.shape), dtype=policy.dtype, device=policy.device)
        self.register_buffer("weight", ones, persistent=False)

    def expected(self) -> ExpectedTensors:
        for number, spec in enumerate(self._specs):
            for tensor in spec.tensors():
                yield Expected(tensor.name, tensor.shape, partial(self._take, number))

    def forward(self, pair: Tensor) -> Tensor:
        first, size = self._specs[0], self.weight.shape[1]
        if pair.device.type == "tape":  # the core norms vectors side by side
            return rms_norm(pair.view(-1, 2, size), self.weight, first.eps, first.offset).view(-1, 2 * size)
        halves = (pair[:, :size].contiguous(), pair[:, size:].contiguous())
        normed = [rms_norm(half, self.weight[place], first.eps, first.offset) for place, half in enumerate(halves)]
        return torch.cat(normed, dim=1)

    def _take(self, number: int, stored: StoredTensor) -> None:
        self.weight[number].copy_(dense(stored, self.weight.dtype))
