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
        ids, weights = self._router(x, adapters)
        self._experts.fetch(ids)
        shared = None if self._shared is None else self._weighed_shared(self._shared, x, adapters)
        output: Tensor = self._experts(x, ids, weights, adapters)
        return output if shared is None else output + shared

    def _weighed_shared(self, mlp: Mlp, x: Tensor, adapters: AdapterRows | None) -> Tensor:
        shared: Tensor = mlp(x, adapters)
        return shared if self._shared_gate is None else self._shared_gate(x, adapters).sigmoid() * shared
