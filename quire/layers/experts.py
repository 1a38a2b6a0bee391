"""Experts: the matrices of all experts of a layer, of which a token multiplies with those that it is given."""

import torch
from torch import Tensor, nn

from quire.layers.expert_cache import ExpertCache
from quire.layers.expert_places import ExpertPlaces
from quire.layers.policy import WeightPolicy
from quire.layers.quant.base import Weight
from quire.layers.weights import ExpectedTensors
from quire.ops.functional import experts_mlp, gated_activation, group_adapters, linear
from quire.ops.lora_tensors import AdapterRows, ExpertLora, LoraMatrix
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.ops.reference.dequantize_matrix import dequantize_matrix
from quire.spec.expert_copies import HeldExperts
from quire.spec.experts import ExpertsSpec


class Experts(nn.Module):
    """Two stacks in the formats of Linear: gates and ups of all experts, and their downs."""

    def __init__(self, spec: ExpertsSpec, policy: WeightPolicy) -> None:
        super().__init__()
        self._activation = spec.activation
        self._weighs_input = spec.weighs_input
        self.places = None if spec.held is None else ExpertPlaces(spec.held, policy.device)
        """Where experts are spread over ranks; None: all are here."""
        self._up = policy.of_experts().weight(spec.up)
        self._down = policy.of_experts().weight(spec.down)
        self.cache = ExpertCache(spec.num_experts, policy.expert_slots, policy.device) if policy.expert_slots else None
        """Of experts that stay in host memory; None: all are on the device."""
        self._fetched: tuple[list[int], Tensor] | None = None
        self.spec = spec
        self.up_lora: LoraMatrix | None = None
        self.down_lora: LoraMatrix | None = None
        """What adapters add to the matrices of experts; None: nothing ever."""

    def expected(self) -> ExpectedTensors:
        yield from self._up.expected()
        yield from self._down.expected()

    def fetch(self, ids: Tensor) -> None:
        """Where experts are in host memory, begin to bring those that were chosen."""
        if self.cache is not None:
            self.cache.settle((_home(self._up), self._up.bias, 2), (_home(self._down), self._down.bias, 1))
            chosen = self.cache.chosen(ids)
            self._fetched = (chosen, self.cache.fetch(chosen[: self.cache.num_slots]))

    def forward(self, x: Tensor, ids: Tensor, weights: Tensor, adapters: AdapterRows | None = None) -> Tensor:
        """x: [tokens, hidden]; `ids` and `weights` [tokens, top_k] are a router's. Of experts that are spread over
        ranks, the sum of those that are here.
        """
        if self.cache is not None:
            assert self._fetched is not None, "experts were not fetched"
            chosen, self._fetched = self._fetched, None
            return self._multiply_fetched(self.cache, *chosen, x, ids, weights)
        if self.places is not None:
            ids = self.places(ids)
        return self._multiply(x, ids, weights, None if adapters is None else self._lora(ids, adapters))

    def between(self, x: Tensor, expert: int) -> Tensor:
        """[tokens, size] of x [tokens, hidden]: what an expert's down reads. For stacks of plain matrices."""
        up, size, count = self._up.stack(), self.spec.size, self.spec.num_experts
        assert isinstance(up, Tensor), "it is quantized"
        rows = [slice(place * size, (place + 1) * size) for place in (expert, count + expert)]
        halves = [linear(x, up[each], None if self._up.bias is None else self._up.bias[each]) for each in rows]
        return gated_activation(torch.cat(halves, dim=-1), self._activation)

    def ranks_of(self, ids: Tensor) -> Tensor:
        """Of each token's experts, where they are spread over ranks, the rank that computes it."""
        assert self.places is not None, "all experts are here"
        return self.places.ranks(ids)

    def compute_some(self, x: Tensor, tokens: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
        """The sum of those that are here, for some tokens: x [some, hidden], int64 `tokens` [some] of all that `ids`
        and `weights` [tokens, top_k] are of."""
        assert self.places is not None, "all experts are here"
        return self._multiply(x, self.places(ids)[tokens], weights[tokens], None)

    def _multiply(self, x: Tensor, ids: Tensor, weights: Tensor, lora: ExpertLora | None) -> Tensor:
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
            some_elsewhere=self.places is not None,
        )

    def take_copies(self, held: HeldExperts, incoming: "Experts | None") -> None:
        """From the next step on, this rank has these experts: `incoming` holds those alone that were not here, in
        order; None: there are none such."""
        assert self.places is not None, "all experts are here"
        coming = [place for _, place in self.places.coming(held)]
        if incoming is not None:
            for whole, part, halves in ((self._up, incoming._up, 2), (self._down, incoming._down, 1)):
                _put(whole, part, coming, halves)
        self.places.change(held)

    def _multiply_fetched(
        self, cache: ExpertCache, chosen: list[int], slot_of: Tensor, x: Tensor, ids: Tensor, weights: Tensor
    ) -> Tensor:
        """With the experts that are in slots; more than fit there take rounds, each with the pairs of its experts."""
        cache.await_experts()
        if len(chosen) <= cache.num_slots:
            return self._multiply_in_slots(cache, x, slot_of[ids], weights)
        top_k, flat = ids.shape[1], ids.flatten()
        outputs = x.new_empty((len(flat), x.shape[1]))
        factors = weights.flatten() if self._weighs_input else torch.ones_like(weights.flatten())
        for first in range(0, len(chosen), cache.num_slots):
            if first:
                slot_of = cache.fetch(chosen[first : first + cache.num_slots])
                cache.await_experts()
            slots = slot_of[flat]
            places = (slots >= 0).nonzero()[:, 0]
            pairs = (x[places // top_k], slots[places, None], factors[places, None])
            outputs[places] = self._multiply_in_slots(cache, *pairs)
        by_rank = outputs.view(*ids.shape, -1).unbind(1)
        total = torch.zeros_like(by_rank[0], dtype=torch.float32)
        for output, weight in zip(by_rank, weights.unbind(1), strict=True):
            total += output if self._weighs_input else output * weight[:, None]
        return total.to(x.dtype)

    def _multiply_in_slots(self, cache: ExpertCache, x: Tensor, slots: Tensor, weights: Tensor) -> Tensor:
        up, down = cache.stack(0), cache.stack(1)
        return experts_mlp(
            x,
            slots,
            weights,
            up.stack(),
            down.stack(),
            self._activation,
            up_bias=up.slot_bias,
            down_bias=down.slot_bias,
            weighs_input=self._weighs_input,
        )

    def _lora(self, ids: Tensor, adapters: AdapterRows) -> ExpertLora | None:
        if self.up_lora is None or self.down_lora is None:
            return None
        slots = adapters.slots.repeat_interleave(ids.shape[1])
        pairs = group_adapters(slots, adapters.num_slots, ids.flatten().long(), self.spec.num_experts)
        return ExpertLora(self.up_lora, self.down_lora, pairs)


def _put(whole: Weight, part: Weight, places: list[int], halves: int) -> None:
    """Write the experts of `part` over those at these places of `whole`; `halves` are 2 where the gates of all experts
    lie above their ups, else 1.
    """
    stack, new = _home(whole), _home(part)
    pairs: list[tuple[Tensor, Tensor]] = []
    if isinstance(stack, Tensor):
        # held in plain numbers with others that could not be packed alike
        pairs.append((stack, dequantize_matrix(new).to(stack.dtype) if isinstance(new, QuantizedMatrix) else new))
    else:
        assert isinstance(new, QuantizedMatrix), "experts of a layer are stored alike"
        planes = new.row_planes()
        pairs.extend((plane, planes[name]) for name, plane in stack.row_planes().items())
        if stack.input_scale is not None and new.input_scale is not None:  # which clips no expert's inputs
            stack.input_scale.copy_(torch.maximum(stack.input_scale, new.input_scale.to(stack.input_scale.device)))
    if whole.bias is not None and part.bias is not None:
        pairs.append((whole.bias, part.bias))
    for target, source in pairs:
        rows = len(source) // (halves * len(places))
        into, given = target.view(halves, -1, rows, *target.shape[1:]), source.view(halves, -1, rows, *source.shape[1:])
        for number, place in enumerate(places):
            into[:, place].copy_(given[:, number], non_blocking=True)


def _home(weight: Weight) -> Tensor | QuantizedMatrix:
    stack = weight.stack()
    assert isinstance(stack, Tensor | QuantizedMatrix), "the core's experts are at home"
    return stack
