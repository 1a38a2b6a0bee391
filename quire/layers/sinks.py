"""Sinks: learned scores of a key without a value, one for each head, that take part in every softmax of a layer."""

import torch
from torch import Tensor, nn

from quire.layers.policy import WeightPolicy
from quire.layers.stored import StoredTensor
from quire.layers.weights import Expected, ExpectedTensors, dense
from quire.spec.tensor import TensorSpec


class Sinks(nn.Module):
    """In float32, as scores are."""

    values: Tensor

    def __init__(self, spec: TensorSpec, policy: WeightPolicy) -> None:
        super().__init__()
        self._spec = spec
        self.register_buffer(
            "values", torch.empty(spec.shape, dtype=torch.float32, device=policy.device), persistent=False
        )

    def expected(self) -> ExpectedTensors:
        yield Expected(self._spec.name, self._spec.shape, self._take)

    def _take(self, stored: StoredTensor) -> None:
        self.values.copy_(dense(stored, torch.float32))
