"""Router: which experts each token goes to, and with what weights."""

import torch
from torch import Tensor, nn

from quire.layers.policy import WeightPolicy
from quire.layers.stored import StoredTensor
from quire.layers.weights import Expected, ExpectedTensors, dense
from quire.ops.functional import add_lora, route_tokens
from quire.ops.lora_tensors import AdapterRows, LoraMatrix
from quire.spec.experts import ExpertsSpec


class Router(nn.Module):
    """One logit for each expert, of which routing makes a choice."""

    correction: Tensor | None

    def __init__(self, spec: ExpertsSpec, policy: WeightPolicy) -> None:
        super().__init__()
        self._spec = spec
        self._weight = policy.weight(spec.router)
        self.matrix = spec.router
        self.lora: LoraMatrix | None = None
        """What adapters add to the matrix; None: nothing ever."""
        self.counts: Tensor | None = None
        """int32 [experts]: tokens that chose each; None: nobody counts."""
        self.counted: Tensor | None = None
        """int64 [1]: how many tokens of a step are counted, the first ones; None: all."""
        empty = torch.empty(spec.num_experts, dtype=torch.float32, device=policy.device)
        self.register_buffer("correction", None if spec.correction is None else empty, persistent=False)

    @property
    def num_experts(self) -> int:
        return self._spec.num_experts

    def expected(self) -> ExpectedTensors:
        yield from self._weight.expected()
        if self._spec.correction is not None:
            yield Expected(self._spec.correction.name, self._spec.correction.shape, self._take_correction)

    def forward(self, x: Tensor, adapters: AdapterRows | None = None) -> tuple[Tensor, Tensor]:
        """The experts of each token and their weights: [tokens, top_k]."""
        return self.choose(self.logits(x, adapters))

    def logits(self, x: Tensor, adapters: AdapterRows | None = None) -> Tensor:
        """[tokens, experts]: what experts are chosen by."""
        logits: Tensor = self._weight(x)
        if adapters is not None and self.lora is not None:
            logits = add_lora(logits, x, self.lora, adapters)
        return logits

    def choose(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Experts and weights by these logits, which are counted."""
        return route_tokens(logits, self.correction, self._spec.routing, self.counts, self.counted)

    def base(self, x: Tensor) -> Tensor:
        """Logits in float32, without adapters."""
        logits: Tensor = self._weight(x)
        return logits.float()

    def _take_correction(self, stored: StoredTensor) -> None:
        assert self.correction is not None
        self.correction.copy_(dense(stored, torch.float32))
