"""ExpertsMlp: what a layer with experts does to each token by itself."""

from torch import Tensor, nn

from quire.layers.experts import Experts
from quire.layers.linear import Linear
from quire.layers.policy import WeightPolicy
from quire.layers.router import Router
from quire.models.mlp import Mlp
from quire.ops.lora_tensors import AdapterRows
from quire.parallel.token_exchange import TokenExchange
from quire.spec.experts import ExpertsSpec


class ExpertsMlp(nn.Module):
    """The experts that a router chooses, and beside them those that all tokens share."""

    def __init__(self, spec: ExpertsSpec, policy: WeightPolicy) -> None:
        super().__init__()
        self._router = Router(spec, policy)
        self._experts = Experts(spec, policy)
        self._shared = None if spec.shared is None else Mlp(spec.shared, policy)
        self._exchange = policy.exchange
        self._top_k = spec.routing.top_k
        self._shared_gate = None if spec.shared_gate is None else Linear(spec.shared_gate, policy)

    def forward(self, x: Tensor, adapters: AdapterRows | None = None) -> Tensor:
        if self._exchange is not None:
            output: Tensor = self.exchanged(x, adapters)
            return output if self._shared is None else output + self._weighed_shared(self._shared, x, adapters)
        ids, weights = self._router(x, adapters)
        self._experts.fetch(ids)
        shared = None if self._shared is None else self._weighed_shared(self._shared, x, adapters)
        output = self._experts(x, ids, weights, adapters)
        return output if shared is None else output + shared

    def exchanged(self, x: Tensor, adapters: AdapterRows | None = None) -> Tensor:
        """What experts of all ranks add to this rank's tokens, while its own compute those of all ranks; a rank without
        tokens takes part as well."""
        assert self._exchange is not None, "experts are spread, and nothing else"
        if self._exchange.sends(self._top_k):
            return self._sent(self._exchange, x, adapters)
        everyones = self._exchange.gather(x)
        if self._router.lora is None:
            logits = self._router.logits(everyones)  # less than one more exchange
        else:  # only a token's own rank knows its adapter
            logits = self._exchange.gather(self._own_logits(x, adapters))
        ids, weights = self._router.choose(logits)
        partial: Tensor = self._experts(everyones, ids, weights)
        return self._exchange.give_back(partial)

    def _sent(self, exchange: TokenExchange, x: Tensor, adapters: AdapterRows | None) -> Tensor:
        """The same, with tokens sent to the ranks of their experts alone. All ranks know what all tokens chose, so that
        none has to ask what comes."""
        ids, weights = self._router.choose(exchange.gather(self._own_logits(x, adapters)))
        sent = exchange.send(x, self._experts.ranks_of(ids))
        partial = self._experts.compute_some(sent.rows, sent.places, ids, weights)
        return exchange.bring_back(partial, sent)

    def _own_logits(self, x: Tensor, adapters: AdapterRows | None) -> Tensor:
        return self._router.logits(x, adapters) if len(x) else x.new_empty((0, self._router.num_experts))

    def _weighed_shared(self, mlp: Mlp, x: Tensor, adapters: AdapterRows | None) -> Tensor:
        shared: Tensor = mlp(x, adapters)
        return shared if self._shared_gate is None else self._shared_gate(x, adapters).sigmoid() * shared
