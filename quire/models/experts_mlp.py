"""ExpertsMlp: what a layer with experts does to each token by itself."""

from torch import Tensor, nn

from quire.layers.experts import Experts
from quire.layers.linear import Linear
from quire.layers.policy import WeightPolicy
from quire.layers.router import Router
from quire.models.mlp import Mlp
from quire.ops.lora_tensors import AdapterRows
from quire.spec.experts import ExpertsSpec


class ExpertsMlp(nn.Module):
    """The experts that a router chooses, and beside them those that all tokens share."""

    def __init__(self, spec: ExpertsSpec, policy: WeightPolicy) -> None:
        super().__init__()
        self._router = Router(spec, policy)
        self._experts = Experts(spec, policy)
        self._shared = None if spec.shared is None else Mlp(spec.shared, policy)
        self._shared_gate = None if spec.shared_gate is None else Linear(spec.shared_gate, policy)

    def forward(self, x: Tensor, adapters: AdapterRows | None = None) -> Tensor:
        output: Tensor = self._experts(x, *self._router(x, adapters), adapters)
        if self._shared is None:
            return output
        shared: Tensor = self._shared(x, adapters)
        return output + (shared if self._shared_gate is None else self._shared_gate(x, adapters).sigmoid() * shared)
