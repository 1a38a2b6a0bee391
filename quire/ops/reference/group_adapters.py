"""group_adapters: the definition, which groups nothing."""

from torch import Tensor

from quire.ops.lora_tensors import AdapterRows


def group_adapters(slots: Tensor, num_slots: int, experts: Tensor | None, num_experts: int) -> AdapterRows:
    return AdapterRows(slots, num_slots, experts, num_experts)
