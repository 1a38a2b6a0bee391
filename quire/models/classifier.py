"""Classifier: from the hidden states of a sequence to a number for each label."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from quire.core.errors import CheckpointError
from quire.layers.linear import Linear
from quire.layers.norm import Norm
from quire.layers.policy import WeightPolicy
from quire.layers.pooling import pool
from quire.spec.model import ClassifierSpec

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "gelu": functional.gelu,
    "relu": functional.relu,
    "silu": functional.silu,
}


class Classifier(nn.Module):
    """One hidden state of a sequence, perhaps through one more matrix and norm, times the labels."""

    def __init__(self, spec: ClassifierSpec, policy: WeightPolicy) -> None:
        super().__init__()
        if spec.activation not in _ACTIVATIONS:
            raise CheckpointError(
                f"the classifier has the activation {spec.activation!r}; quire has {', '.join(_ACTIVATIONS)}."
            )
        self._pooling = spec.pooling
        self._dense = None if spec.dense is None else Linear(spec.dense, policy)
        self._activation = _ACTIVATIONS[spec.activation]
        self._norm = None if spec.norm is None else Norm(spec.norm, policy)
        assert spec.out is not None, "labels have rows of their own"
        self._out = Linear(spec.out, policy)
        self._dtype = policy.dtype

    def forward(self, hidden: Tensor, starts: Tensor) -> Tensor:
        """hidden: [tokens, size], starts: [sequences + 1]; gives [sequences, labels] in float32."""
        pooled = pool(hidden, starts, self._pooling).to(self._dtype)
        if self._dense is not None:
            pooled = self._activation(self._dense(pooled))
        if self._norm is not None:
            pooled = self._norm(pooled)
        logits: Tensor = self._out(pooled)
        return logits.float()
