"""Experts: the matrices of all experts of a layer, of which a token multiplies with those that it is given."""

import torch
from torch import Tensor, nn

from quire.layers.policy import WeightPolicy
from quire.layers.weights import ExpectedTensors
from quire.ops.functional import experts_mlp, group_adapters
from quire.ops.lora_tensors import AdapterRows, ExpertLora, LoraMatrix
from quire.spec.experts import ExpertsSpec


class Experts(nn.Module):
    """Two stacks in the formats of Linear: gates and ups of all experts, and their downs."""

    def __init__(self, spec: ExpertsSpec, policy: WeightPolicy) -> None:
        super().__init__()
        self._activation = spec.activation
        self._weighs_input = spec.weighs_input
        self._held = spec.held
        self._up = policy.weight(spec.up)
        self._down = policy.weight(spec.down)
        self.spec = spec
        self.up_lora: LoraMatrix | None = None
        self.down_lora: LoraMatrix | None = None
        """What adapters add to the matrices of experts; None: nothing ever."""

    def expected(self) -> ExpectedTensors:
        yield from self._up.expected()
        yield from self._down.expected()

    def forward(self, x: Tensor, ids: Tensor, weights: Tensor, adapters: AdapterRows | None = None) -> Tensor:
        """x: [tokens, hidden]; `ids` and `weights` [tokens, top_k] are a router's. Of experts that are spread over
        ranks, the sum of those that are here.
        """
        if self._held is not None:
            ids = _places_in(self._held, ids)
        lora = None if adapters is None else self._lora(ids, adapters)
        return experts_mlp(
            x,
            ids,
            weights,
            self._up.stack(),
            self._down.stack(),
            self._activation,
            up_bias=self._up.bias,
            down_bias=self._down.bias,
            weighs_input=self._weighs_input,
            lora=lora,
            some_elsewhere=self._held is not None,
        )

    def _lora(self, ids: Tensor, adapters: AdapterRows) -> ExpertLora | None:
        if self.up_lora is None or self.down_lora is None:
            return None
        slots = adapters.slots.repeat_interleave(ids.shape[1])
        pairs = group_adapters(slots, adapters.num_slots, ids.flatten().long(), self.spec.num_experts)
        return ExpertLora(self.up_lora, self.down_lora, pairs)


def _places_in(held: range, ids: Tensor) -> Tensor:
    """Of each expert its place among those that are here, or -1."""
    places = ids - held.start
    return torch.where((places >= 0) & (places < len(held)), places, -1)
