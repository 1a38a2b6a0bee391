"""WeightPolicy: where a model's weights are held, in which numbers, and by which method."""

from dataclasses import dataclass, field, replace

import torch

from quire.layers.quant.base import LinearMethod, UpWeight, Weight
from quire.layers.quant.dense import DenseMethod
from quire.parallel.group import Group
from quire.parallel.token_exchange import TokenExchange
from quire.spec.matrix import MatrixSpec

_HOST = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class WeightPolicy:
    """Of one model."""

    dtype: torch.dtype
    """What activations are computed in; norms and biases are held in it."""
    device: torch.device
    method: LinearMethod | None = None
    """None: dense, in `dtype`."""
    offloaded: frozenset[int] = frozenset()
    """Layers whose weights stay in host memory."""
    expert_slots: int = 0
    """Of a layer's experts, how many are on the device at a time, the others staying in host memory; 0: all."""
    pinned: bool = field(default=False)
    group: Group | None = None
    """The ranks that hold the rest of a model that is cut; None: all of it is here."""
    exchange: TokenExchange | None = None
    """How tokens come to experts of other ranks, where all else is here; None: it is not so."""

    def of_layer(self, layer: int) -> "WeightPolicy":
        """Where and how one layer's weights are held."""
        return replace(self, device=_HOST, pinned=True) if layer in self.offloaded else self

    def of_experts(self) -> "WeightPolicy":
        """Where and how the matrices of a layer's experts are held."""
        return replace(self, device=_HOST, pinned=True) if self.expert_slots else self

    def of_tower(self) -> "WeightPolicy":
        """Of a tower beside the language model: whole on every rank, in plain numbers."""
        return replace(self, method=None, group=None, exchange=None, offloaded=frozenset(), expert_slots=0)

    def weight(self, matrix: MatrixSpec) -> Weight:
        """A weight for a matrix, to be filled."""
        return self._method.create(matrix, self.device, pinned=self.pinned)

    def up_weight(self, matrix: MatrixSpec) -> UpWeight:
        """A weight for what makes keys and values of latents, to be filled."""
        return self._method.create_up(matrix, self.device, pinned=self.pinned)

    @property
    def _method(self) -> LinearMethod:
        return self.method or DenseMethod(self.dtype)
